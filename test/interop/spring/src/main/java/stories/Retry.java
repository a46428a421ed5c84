package stories;

import static interop.Interop.equal;

import interop.Deaths;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import org.springframework.amqp.AmqpRejectAndDontRequeueException;
import org.springframework.amqp.core.AmqpAdmin;
import org.springframework.amqp.core.Message;
import org.springframework.amqp.core.Queue;
import org.springframework.amqp.core.QueueBuilder;
import org.springframework.amqp.rabbit.annotation.RabbitListener;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;

/** work rejects into wait, wait expires back into work (DL-19.1); after three rounds the listener parks the message. */
final class Retry {
    private static final int ROUNDS = 3;

    private Retry() {}

    static void play() throws Exception {
        try (ConfigurableApplicationContext context = App.start(List.of(), Loop.class)) {
            RabbitTemplate template = context.getBean(RabbitTemplate.class);
            template.convertAndSend("work", "poison");
            Message parked = Queues.take(template, "parking");
            equal("poison", Queues.text(parked), "body");
            equal(List.of(0L, 1L, 2L, 3L), context.getBean(Loop.class).counts, "counts that the listener saw");
            Map<String, Object> headers = Queues.headers(parked);
            equal(2, Deaths.of(headers).size(), "entries of x-death");
            Deaths.check(headers, 0, "wait", "expired", ROUNDS, "", List.of("wait"));
            Deaths.check(headers, 1, "work", "rejected", ROUNDS, "", List.of("work"));
            Deaths.first(headers, "work", "rejected", "");
            Queues.depth(context.getBean(AmqpAdmin.class), "wait", 0);
        }
    }

    static class Loop {
        final List<Long> counts = new CopyOnWriteArrayList<>();

        @Bean
        Queue work() {
            return QueueBuilder.durable("work").deadLetterExchange("").deadLetterRoutingKey("wait").build();
        }

        @Bean
        Queue waiting() {
            return QueueBuilder.durable("wait").ttl(200).deadLetterExchange("").deadLetterRoutingKey("work").build();
        }

        @Bean
        Queue parking() {
            return QueueBuilder.durable("parking").build();
        }

        private final ObjectProvider<RabbitTemplate> template;

        Loop(ObjectProvider<RabbitTemplate> template) {
            this.template = template;
        }

        @RabbitListener(queues = "work")
        void handle(Message message) {
            long count = Deaths.count(Queues.headers(message), "work", "rejected");
            counts.add(count);
            if (count < ROUNDS) {
                throw new AmqpRejectAndDontRequeueException("round " + count);
            }
            template.getObject().send("", "parking", message);
        }
    }
}
