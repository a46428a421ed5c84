package stories;

import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.springframework.amqp.core.Binding;
import org.springframework.amqp.core.BindingBuilder;
import org.springframework.amqp.core.DirectExchange;
import org.springframework.amqp.core.Message;
import org.springframework.amqp.core.Queue;
import org.springframework.amqp.core.QueueBuilder;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** A queue whose dead letters go to another, as most stories need them: "work", by "work.dlx" to "work.dlq". */
@Configuration
class WorkQueues {
    @Bean
    Queue work() {
        return QueueBuilder.durable("work").deadLetterExchange("work.dlx").deadLetterRoutingKey("dead").build();
    }

    @Bean
    DirectExchange workDlx() {
        return new DirectExchange("work.dlx");
    }

    @Bean
    Queue workDlq() {
        return QueueBuilder.durable("work.dlq").build();
    }

    @Bean
    Binding workDlqBinding(Queue workDlq, DirectExchange workDlx) {
        return BindingBuilder.bind(workDlq).to(workDlx).with("dead");
    }

    /** Keeps every delivery and fails. */
    static class Failing {
        final List<Message> attempts = new CopyOnWriteArrayList<>();

        void fail(Message message) {
            attempts.add(message);
            throw new IllegalStateException("no stock for " + Queues.text(message));
        }
    }
}
