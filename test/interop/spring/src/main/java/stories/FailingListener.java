package stories;

import static interop.Interop.await;
import static interop.Interop.equal;

import com.rabbitmq.client.Channel;
import interop.Deaths;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.springframework.amqp.AmqpRejectAndDontRequeueException;
import org.springframework.amqp.core.Declarables;
import org.springframework.amqp.core.Message;
import org.springframework.amqp.core.QueueBuilder;
import org.springframework.amqp.rabbit.annotation.RabbitListener;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;

/**
 * What becomes of a message whose listener fails, for each way to fail and both types of queue. It prints the table of the
 * guide. What Spring does when a listener throws is basic.nack with requeue.
 */
final class FailingListener {
    /** So often a message of a classic queue comes before the listener takes it. */
    private static final int ENOUGH = 10;

    private static final List<String> THROWS = List.of("throw", "throw AmqpRejectAndDontRequeueException");
    private static final List<String> SETTLES =
            List.of("basicNack, requeue", "basicReject, requeue", "basicNack, no requeue", "basicReject, no requeue");

    private FailingListener() {}

    static void play() throws Exception {
        try (ConfigurableApplicationContext context = App.start(List.of(), Listeners.class)) {
            RabbitTemplate template = context.getBean(RabbitTemplate.class);
            Listeners listeners = context.getBean(Listeners.class);
            print("the listener does", "classic queue", "quorum queue, delivery-limit 2");
            for (List<String> ways : List.of(THROWS, SETTLES)) {
                String suffix = ways == THROWS ? ".auto" : ".manual";
                for (String way : ways) {
                    boolean back = way.equals("throw") || way.endsWith(", requeue");
                    List<String> row = new ArrayList<>(List.of(way));
                    for (String type : List.of("classic", "quorum")) {
                        listeners.attempts.clear();
                        template.convertAndSend(type + suffix, way);
                        if (back && type.equals("classic")) {
                            await("attempts of " + way, () -> listeners.attempts.getOrDefault(type + suffix, 0) > ENOUGH);
                            row.add("comes back at once, for ever");
                            continue;
                        }
                        Message dead = Queues.take(template, "dead");
                        int attempts = listeners.attempts.get(type + suffix);
                        equal(back ? 3 : 1, attempts, "attempts in the " + type + " queue of " + way);
                        String reason = back ? "delivery_limit" : "rejected";
                        Deaths.check(Queues.headers(dead), 0, type + suffix, reason, 1, "", List.of(type + suffix));
                        row.add(String.format("dies, %s, after %d attempt%s", reason, attempts, attempts == 1 ? "" : "s"));
                    }
                    print(row.toArray(String[]::new));
                }
            }
        }
    }

    private static void print(String... row) {
        System.out.println(String.format("%-40s %-33s %s", (Object[]) row).stripTrailing());
    }

    static class Listeners {
        final Map<String, Integer> attempts = new ConcurrentHashMap<>();

        @Bean
        Declarables queues() {
            List<org.springframework.amqp.core.Queue> list = new ArrayList<>(List.of(QueueBuilder.durable("dead").build()));
            for (String suffix : List.of(".auto", ".manual")) {
                list.add(to("dead", QueueBuilder.durable("classic" + suffix)));
                list.add(to("dead", QueueBuilder.durable("quorum" + suffix).quorum().deliveryLimit(2)));
            }
            return new Declarables(list);
        }

        private static org.springframework.amqp.core.Queue to(String queue, QueueBuilder builder) {
            return builder.deadLetterExchange("").deadLetterRoutingKey(queue).build();
        }

        /** Counts an attempt; true says that it is enough. */
        private boolean attempt(Message message) {
            return attempts.merge(message.getMessageProperties().getConsumerQueue(), 1, Integer::sum) > ENOUGH;
        }

        @RabbitListener(queues = {"classic.auto", "quorum.auto"})
        void fail(Message message) {
            if (attempt(message)) {
                return;
            }
            if (Queues.text(message).equals("throw")) {
                throw new IllegalStateException("no stock");
            }
            throw new AmqpRejectAndDontRequeueException("no such product");
        }

        @RabbitListener(queues = {"classic.manual", "quorum.manual"}, ackMode = "MANUAL")
        void settle(Message message, Channel channel) throws Exception {
            long tag = message.getMessageProperties().getDeliveryTag();
            if (attempt(message)) {
                channel.basicAck(tag, false);
                return;
            }
            String way = Queues.text(message);
            boolean requeue = way.endsWith(", requeue");
            if (way.startsWith("basicNack")) {
                channel.basicNack(tag, false, requeue);
            } else {
                channel.basicReject(tag, requeue);
            }
        }
    }
}
