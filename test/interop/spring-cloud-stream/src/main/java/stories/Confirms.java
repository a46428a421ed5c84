package stories;

import static interop.Interop.check;
import static interop.Interop.equal;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.springframework.amqp.core.AmqpAdmin;
import org.springframework.amqp.rabbit.connection.CorrelationData;
import org.springframework.amqp.support.AmqpHeaders;
import org.springframework.cloud.stream.function.StreamBridge;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.messaging.support.MessageBuilder;

/** StreamBridge with useConfirmHeader: each message has a future of its confirm, and what no queue is bound for comes back. */
final class Confirms {
    private static final int MESSAGES = 50;

    private Confirms() {}

    static void play() throws Exception {
        List<String> properties = List.of(
                "spring.rabbitmq.publisher-confirm-type=correlated",
                "spring.rabbitmq.publisher-returns=true",
                "spring.cloud.stream.rabbit.default.producer.use-confirm-header=true",
                "spring.cloud.stream.bindings.audit.producer.required-groups=all");
        try (ConfigurableApplicationContext context = App.start(List.of(), properties, Idle.class)) {
            StreamBridge bridge = context.getBean(StreamBridge.class);
            List<CorrelationData> sent = new ArrayList<>();
            for (int i = 0; i < MESSAGES; i++) {
                sent.add(send(bridge, "audit", "order " + i));
            }
            for (CorrelationData correlation : sent) {
                check(correlation.getFuture().get(10, TimeUnit.SECONDS).ack(), "%s was refused", correlation.getId());
                check(correlation.getReturned() == null, "%s came back", correlation.getId());
            }
            Queues.depth(context.getBean(AmqpAdmin.class), "audit.all", MESSAGES);

            CorrelationData lost = send(bridge, "nobody", "lost");
            check(lost.getFuture().get(10, TimeUnit.SECONDS).ack(), "what cannot be routed was refused");
            check(lost.getReturned() != null, "what cannot be routed did not come back before its confirm");
            equal(312, lost.getReturned().getReplyCode(), "reply code");
            equal("nobody", lost.getReturned().getExchange(), "exchange of the return");
        }
    }

    private static CorrelationData send(StreamBridge bridge, String destination, String text) {
        CorrelationData correlation = new CorrelationData(text);
        bridge.send(destination, MessageBuilder.withPayload(text)
                .setHeader(AmqpHeaders.PUBLISH_CONFIRM_CORRELATION, correlation)
                .build());
        return correlation;
    }

    static class Idle {
        @Bean
        Consumer<String> handle() {
            return order -> {};
        }
    }
}
