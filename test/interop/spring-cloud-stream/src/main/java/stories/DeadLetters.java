package stories;

import static interop.Interop.check;
import static interop.Interop.equal;

import interop.Deaths;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.springframework.amqp.core.AmqpAdmin;
import org.springframework.amqp.core.Message;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.cloud.stream.function.StreamBridge;
import org.springframework.context.ConfigurableApplicationContext;

/** What the binder does with a message whose consumer fails, by autoBindDlq, republishToDlq and maxAttempts. */
final class DeadLetters {
    private static final String ONE_ATTEMPT = "spring.cloud.stream.bindings.handle-in-0.consumer.max-attempts=1";

    private DeadLetters() {}

    /** autoBindDlq without republishing: the broker moves the message, with its x-death. */
    static void reject() throws Exception {
        rejected(List.of("auto-bind-dlq=true", "republish-to-dlq=false"));
    }

    /** The same with quorum queues, work and DLQ alike. */
    static void rejectQuorum() throws Exception {
        rejected(List.of("auto-bind-dlq=true", "republish-to-dlq=false", "quorum.enabled=true", "dlq-quorum.enabled=true"));
    }

    private static void rejected(List<String> consumer) throws Exception {
        try (ConfigurableApplicationContext context = App.start(consumer, List.of(ONE_ATTEMPT), Failing.class)) {
            context.getBean(StreamBridge.class).send("orders", "order 1");
            Message dead = Queues.take(context.getBean(RabbitTemplate.class), "orders.work.dlq");
            equal("order 1", Queues.text(dead), "body");
            Queues.cameBy("DLX", "orders.work", dead);
            Map<String, Object> headers = Queues.headers(dead);
            equal(1, Deaths.of(headers).size(), "entries of x-death");
            Deaths.check(headers, 0, "orders.work", "rejected", 1, "orders", List.of("orders"));
            Deaths.first(headers, "orders.work", "rejected", "orders");
            Deaths.last(headers, "orders.work", "rejected", "orders");
            equal(1, context.getBean(Failing.class).attempts.size(), "attempts");
            Queues.depth(context.getBean(AmqpAdmin.class), "orders.work", 0);
        }
    }

    /** maxAttempts: three attempts in the process, by default, on one delivery. */
    static void maxAttempts() throws Exception {
        try (ConfigurableApplicationContext context =
                App.start(List.of("auto-bind-dlq=true", "republish-to-dlq=false"), List.of(), Failing.class)) {
            context.getBean(StreamBridge.class).send("orders", "order 1");
            Message dead = Queues.take(context.getBean(RabbitTemplate.class), "orders.work.dlq");
            Deaths.check(Queues.headers(dead), 0, "orders.work", "rejected", 1, "orders", List.of("orders"));
            List<Object> redelivered = context.getBean(Failing.class).attempts.stream()
                    .map(message -> message.getHeaders().get("amqp_redelivered"))
                    .collect(Collectors.toList());
            equal(List.of(false, false, false), redelivered, "redelivered of the attempts");
        }
    }

    /** republishToDlq: the binder publishes it to the DLX itself, with the exception in the headers. It never died. */
    static void republish() throws Exception {
        try (ConfigurableApplicationContext context =
                App.start(List.of("auto-bind-dlq=true", "republish-to-dlq=true"), List.of(ONE_ATTEMPT), Failing.class)) {
            context.getBean(StreamBridge.class).send("orders", "order 1");
            Message failed = Queues.take(context.getBean(RabbitTemplate.class), "orders.work.dlq");
            equal("order 1", Queues.text(failed), "body");
            Queues.cameBy("DLX", "orders.work", failed);
            Map<String, Object> headers = Queues.headers(failed);
            equal("no stock for order 1", headers.get("x-exception-message"), "x-exception-message");
            equal("orders", headers.get("x-original-exchange"), "x-original-exchange");
            equal("orders", headers.get("x-original-routingKey"), "x-original-routingKey");
            String stack = headers.get("x-exception-stacktrace").toString();
            check(stack.contains("IllegalStateException: no stock for order 1"), "x-exception-stacktrace is %s", stack);
            equal(0, Deaths.of(headers).size(), "entries of x-death");
            Queues.depth(context.getBean(AmqpAdmin.class), "orders.work", 0);
        }
    }
}
