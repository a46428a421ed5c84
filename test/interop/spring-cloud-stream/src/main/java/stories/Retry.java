package stories;

import static interop.Interop.check;
import static interop.Interop.equal;

import interop.Deaths;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Consumer;
import org.springframework.amqp.AmqpRejectAndDontRequeueException;
import org.springframework.amqp.core.AmqpAdmin;
import org.springframework.amqp.core.Queue;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.cloud.stream.function.StreamBridge;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.messaging.Message;

/**
 * dlqTtl with the default exchange as the DLQ's own DLX: a dead order comes back to its queue when its time in the DLQ is
 * over. After three rounds by x-death the consumer parks it.
 */
final class Retry {
    private static final int ROUNDS = 3;
    private static final int WAIT = 200; // ms

    private Retry() {}

    static void play() throws Exception {
        List<String> consumer = List.of(
                "auto-bind-dlq=true", "republish-to-dlq=false", "dlq-ttl=" + WAIT, "dlq-dead-letter-exchange=");
        try (ConfigurableApplicationContext context = App.start(
                consumer, List.of("spring.cloud.stream.bindings.handle-in-0.consumer.max-attempts=1"), Parking.class)) {
            RabbitTemplate template = context.getBean(RabbitTemplate.class);
            context.getBean(AmqpAdmin.class).declareQueue(new Queue("orders.parking-lot"));
            long began = System.nanoTime();
            context.getBean(StreamBridge.class).send("orders", "poison");
            org.springframework.amqp.core.Message parked = Queues.take(template, "orders.parking-lot");
            long took = (System.nanoTime() - began) / 1_000_000;
            check(took >= ROUNDS * WAIT, "%d rounds of %d ms took %d ms", ROUNDS, WAIT, took);
            equal("poison", Queues.text(parked), "body");
            Parking parking = context.getBean(Parking.class);
            equal(List.of(0L, 1L, 2L, 3L), parking.counts, "counts that the consumer saw");
            Map<String, Object> headers = parking.last;
            equal(2, Deaths.of(headers).size(), "entries of x-death");
            Deaths.check(headers, 0, "orders.work.dlq", "expired", ROUNDS, "DLX", List.of("orders.work"));
            Deaths.check(headers, 1, "orders.work", "rejected", ROUNDS, "orders", List.of("orders"));
            Deaths.first(headers, "orders.work", "rejected", "orders");
            Queues.depth(context.getBean(AmqpAdmin.class), "orders.work", 0);
            Queues.depth(context.getBean(AmqpAdmin.class), "orders.work.dlq", 0);
        }
    }

    static class Parking {
        final List<Long> counts = new CopyOnWriteArrayList<>();
        volatile Map<String, Object> last;
        private final ObjectProvider<RabbitTemplate> template;

        Parking(ObjectProvider<RabbitTemplate> template) {
            this.template = template;
        }

        @Bean
        Consumer<Message<String>> handle() {
            return message -> {
                last = message.getHeaders();
                long count = Deaths.count(last, "orders.work", "rejected");
                counts.add(count);
                if (count < ROUNDS) {
                    throw new AmqpRejectAndDontRequeueException("round " + count);
                }
                template.getObject().convertAndSend("orders.parking-lot", message.getPayload());
            };
        }
    }
}
