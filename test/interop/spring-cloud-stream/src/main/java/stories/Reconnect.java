package stories;

import static interop.Interop.await;
import static interop.Interop.check;

import interop.Interop;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.springframework.amqp.core.AmqpAdmin;
import org.springframework.amqp.rabbit.connection.CorrelationData;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.cloud.stream.function.StreamBridge;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;

/** The broker is killed under a binding, which comes back by itself. */
final class Reconnect {
    private static final int MESSAGES = 20;
    private static final String CONFIRMS = "spring.rabbitmq.publisher-confirm-type=correlated";

    private Reconnect() {}

    /** One order is in hand when the broker is killed; it and all that were confirmed are there afterwards. */
    static void play() throws Exception {
        try (ConfigurableApplicationContext context = App.start(
                List.of("recovery-interval=500"), List.of(CONFIRMS), Holding.class)) {
            Holding holding = context.getBean(Holding.class);
            RabbitTemplate template = context.getBean(RabbitTemplate.class);
            publish(template);
            check(holding.begun.await(10, TimeUnit.SECONDS), "no order has come in 10 s");

            Interop.restart();
            holding.restarted.countDown();

            await("all orders at the recovered binding", () -> holding.orders.size(), size -> size == MESSAGES);
            context.getBean(StreamBridge.class).send("orders", "new");
            await("a new order", () -> holding.orders.contains("new"));
            Queues.depth(context.getBean(AmqpAdmin.class), "orders.work", 0);
        }
    }

    static class Holding {
        final CountDownLatch begun = new CountDownLatch(1);
        final CountDownLatch restarted = new CountDownLatch(1);
        final Set<String> orders = ConcurrentHashMap.newKeySet();

        @Bean
        Consumer<String> handle() {
            return order -> {
                begun.countDown();
                try {
                    check(restarted.await(50, TimeUnit.SECONDS), "the broker was not started again in 50 s");
                } catch (InterruptedException ends) {
                    Thread.currentThread().interrupt();
                    return;
                }
                orders.add(order);
            };
        }
    }

    /** All orders are dead letters when the broker is killed, and still are afterwards; RabbitMQ 4.3.6 has lost them. */
    static void deadLetters() throws Exception {
        try (ConfigurableApplicationContext context = App.start(
                List.of("auto-bind-dlq=true", "republish-to-dlq=false", "recovery-interval=500"),
                List.of("spring.cloud.stream.bindings.handle-in-0.consumer.max-attempts=1", CONFIRMS), Failing.class)) {
            AmqpAdmin admin = context.getBean(AmqpAdmin.class);
            RabbitTemplate template = context.getBean(RabbitTemplate.class);
            publish(template);
            Queues.depth(admin, "orders.work.dlq", MESSAGES);

            Interop.restart();

            Set<String> dead = new HashSet<>();
            for (int i = 0; i < MESSAGES; i++) {
                dead.add(Queues.text(Queues.take(template, "orders.work.dlq")));
            }
            Interop.equal(MESSAGES, dead.size(), "dead letters that differ");
            Queues.depth(admin, "orders.work", 0);
        }
    }

    /** Publishes orders and waits for their confirms. */
    private static void publish(RabbitTemplate template) throws Exception {
        List<CorrelationData> sent = new ArrayList<>();
        for (int i = 0; i < MESSAGES; i++) {
            CorrelationData correlation = new CorrelationData("order " + i);
            template.convertAndSend("orders", "orders", "order " + i, correlation);
            sent.add(correlation);
        }
        for (CorrelationData correlation : sent) {
            check(correlation.getFuture().get(10, TimeUnit.SECONDS).ack(), "%s was refused", correlation.getId());
        }
    }
}
