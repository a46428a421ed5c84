package stories;

import static interop.Interop.await;
import static interop.Interop.check;
import static interop.Interop.equal;

import interop.Deaths;
import java.util.List;
import java.util.Map;
import org.springframework.amqp.AmqpRejectAndDontRequeueException;
import org.springframework.amqp.core.AmqpAdmin;
import org.springframework.amqp.core.Message;
import org.springframework.amqp.core.Queue;
import org.springframework.amqp.core.QueueBuilder;
import org.springframework.amqp.rabbit.annotation.RabbitListener;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import seed002.DlqInspector;
import seed002.DlxConfig;
import seed002.OrderListener;
import seed002.OrdersConfig;
import seed002.RetryConfig;

/** The Spring AMQP course (seed 002) as an application. */
final class Seed002 {
    private Seed002() {}

    /** The three triggers of section 1, each seen by the listener of section 3 (DL-20.3: the fourth is of quorum queues). */
    static void triggers() throws Exception {
        try (ConfigurableApplicationContext context =
                App.start(List.of(), OrdersConfig.class, DlxConfig.class, DlqInspector.class, Bounded.class)) {
            RabbitTemplate template = context.getBean(RabbitTemplate.class);
            DlqInspector inspector = context.getBean(DlqInspector.class);
            context.getBean(AmqpAdmin.class).initialize();

            template.convertAndSend("orders.exchange", "order.created", "late", message -> {
                message.getMessageProperties().setExpiration("100");
                return message;
            });
            inspected(inspector, 1, "late", "orders.queue", "expired", "orders.exchange", "order.created");
            template.convertAndSend("orders.bounded", "pushed out");
            template.convertAndSend("orders.bounded", "bad");
            inspected(inspector, 2, "pushed out", "orders.bounded", "maxlen", "", "orders.bounded");
            template.execute(channel -> {
                channel.basicReject(channel.basicGet("orders.bounded", false).getEnvelope().getDeliveryTag(), false);
                return null;
            });
            inspected(inspector, 3, "bad", "orders.bounded", "rejected", "", "orders.bounded");
            equal(List.of(1L, 1L, 1L), inspector.counts, "counts");
        }
    }

    static class Bounded {
        @Bean
        Queue ordersBounded() {
            return QueueBuilder.durable("orders.bounded")
                    .maxLength(1L)
                    .overflow(QueueBuilder.Overflow.dropHead)
                    .deadLetterExchange("orders.dlx")
                    .deadLetterRoutingKey("orders.dead")
                    .build();
        }
    }

    private static void inspected(
            DlqInspector inspector, int nth, String text, String queue, String reason, String exchange, String key) throws Exception {
        await(nth + " inspected messages", () -> inspector.inspected.size() >= nth);
        Message message = inspector.inspected.get(nth - 1);
        equal(text, Queues.text(message), "body");
        Queues.cameBy("orders.dlx", "orders.dead", message);
        Deaths.check(Queues.headers(message), 0, queue, reason, 1, exchange, List.of(key));
        Deaths.first(Queues.headers(message), queue, reason, exchange);
    }

    /** Section 2: what a listener rejects is in the DLQ "for inspection instead of vanishing". */
    static void deadLetterQueue() throws Exception {
        try (ConfigurableApplicationContext context =
                App.start(List.of(), OrdersConfig.class, DlxConfig.class, DlqInspector.class, Rejecting.class)) {
            context.getBean(RabbitTemplate.class).convertAndSend("orders.exchange", "order.created", "order 1");
            inspected(context.getBean(DlqInspector.class), 1, "order 1", "orders.queue", "rejected", "orders.exchange", "order.created");
        }
    }

    static class Rejecting {
        @RabbitListener(queues = "orders.queue")
        void handle(String order) {
            throw new AmqpRejectAndDontRequeueException("bad " + order);
        }
    }

    /** Sections 4 and 5: three delayed retries, then the parking lot; replayed from there once the deploy is mended. */
    static void parkingLot() throws Exception {
        try (ConfigurableApplicationContext context = App.start(
                List.of("orders.retry.ttl=300"), OrdersConfig.class, DlxConfig.class, RetryConfig.class, DlqInspector.class, OrderListener.class)) {
            RabbitTemplate template = context.getBean(RabbitTemplate.class);
            AmqpAdmin admin = context.getBean(AmqpAdmin.class);
            DlqInspector inspector = context.getBean(DlqInspector.class);
            OrderListener listener = context.getBean(OrderListener.class);

            long began = System.nanoTime();
            template.convertAndSend("orders.exchange", "order.created", "order 1");
            Message parked = Queues.take(template, "orders.parking-lot.queue");
            long took = (System.nanoTime() - began) / 1_000_000;
            check(took >= 3 * 300, "three delays of 300 ms took %d ms", took);
            equal("order 1", Queues.text(parked), "body");
            Map<String, Object> headers = Queues.headers(parked);
            equal(2, Deaths.of(headers).size(), "entries of x-death");
            Deaths.check(headers, 0, "orders.retry.queue", "expired", 3, "orders.dlx", List.of("orders.dead"));
            Deaths.check(headers, 1, "orders.queue", "rejected", 3, "orders.exchange", List.of("order.created"));
            Deaths.first(headers, "orders.queue", "rejected", "orders.exchange");
            await("three inspected messages", () -> inspector.counts.size() == 3);
            equal(List.of(1L, 2L, 3L), inspector.counts, "counts in the DLQ");
            Queues.depth(admin, "orders.retry.queue", 0);
            equal(List.of(), listener.handled, "handled orders");

            listener.deployIsBad = false;
            template.send("orders.exchange", "order.created", parked);
            await("the replayed order", () -> listener.handled.equals(List.of("order 1")));
        }
    }
}
