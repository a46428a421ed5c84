package stories;

import static interop.Interop.equal;

import interop.Deaths;
import java.util.List;
import java.util.Map;
import org.springframework.amqp.core.AmqpAdmin;
import org.springframework.amqp.core.Message;
import org.springframework.amqp.rabbit.annotation.RabbitListener;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.context.ConfigurableApplicationContext;

/** A listener that fails rejects (default-requeue-rejected=false): the message is in the DLQ with its history. */
final class Reject {
    private Reject() {}

    static void play() throws Exception {
        try (ConfigurableApplicationContext context = App.start(
                List.of("spring.rabbitmq.listener.simple.default-requeue-rejected=false"), WorkQueues.class, Listener.class)) {
            RabbitTemplate template = context.getBean(RabbitTemplate.class);
            template.convertAndSend("work", "order");
            Message dead = Queues.take(template, "work.dlq");
            equal("order", Queues.text(dead), "body");
            Queues.cameBy("work.dlx", "dead", dead);
            equal(1, dead.getMessageProperties().getXDeathHeader().size(), "entries of x-death");
            Map<String, Object> headers = Queues.headers(dead);
            Deaths.check(headers, 0, "work", "rejected", 1, "", List.of("work"));
            Deaths.first(headers, "work", "rejected", "");
            Deaths.last(headers, "work", "rejected", "");
            equal(1, context.getBean(Listener.class).attempts.size(), "deliveries");
            Queues.depth(context.getBean(AmqpAdmin.class), "work", 0);
        }
    }

    static class Listener extends WorkQueues.Failing {
        @Override
        @RabbitListener(queues = "work")
        void fail(Message message) {
            super.fail(message);
        }
    }
}
