package stories;

import static interop.Interop.check;
import static interop.Interop.equal;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.springframework.amqp.core.AmqpAdmin;
import org.springframework.amqp.core.Queue;
import org.springframework.amqp.core.ReturnedMessage;
import org.springframework.amqp.rabbit.connection.CorrelationData;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.context.ConfigurableApplicationContext;

/** RabbitTemplate's confirms, correlated and simple; what has no queue comes back with its correlation data. */
final class Confirms {
    private static final int MESSAGES = 50;

    private Confirms() {}

    static void play() throws Exception {
        List<String> correlated = List.of(
                "spring.rabbitmq.publisher-confirm-type=correlated",
                "spring.rabbitmq.publisher-returns=true",
                "spring.rabbitmq.template.mandatory=true");
        try (ConfigurableApplicationContext context = App.start(correlated)) {
            RabbitTemplate template = context.getBean(RabbitTemplate.class);
            AmqpAdmin admin = context.getBean(AmqpAdmin.class);
            admin.declareQueue(new Queue("orders"));

            List<CorrelationData> sent = new ArrayList<>();
            for (int i = 0; i < MESSAGES; i++) {
                CorrelationData correlation = new CorrelationData("order " + i);
                template.convertAndSend("", "orders", "order " + i, correlation);
                sent.add(correlation);
            }
            for (CorrelationData correlation : sent) {
                check(correlation.getFuture().get(10, TimeUnit.SECONDS).ack(), "%s was refused", correlation.getId());
                check(correlation.getReturned() == null, "%s came back", correlation.getId());
            }

            CorrelationData nowhere = new CorrelationData("nowhere");
            template.convertAndSend("", "nowhere", "lost", nowhere);
            check(nowhere.getFuture().get(10, TimeUnit.SECONDS).ack(), "what cannot be routed was refused");
            ReturnedMessage back = nowhere.getReturned();
            check(back != null, "what cannot be routed did not come back before its confirm");
            equal(312, back.getReplyCode(), "reply code");
            equal("NO_ROUTE", back.getReplyText(), "reply text");
            equal("", back.getExchange(), "exchange of the return");
            equal("nowhere", back.getRoutingKey(), "routing key of the return");
            equal("lost", Queues.text(back.getMessage()), "body of the return");

            CorrelationData noExchange = new CorrelationData("no exchange");
            template.convertAndSend("no.exchange", "key", "lost", noExchange);
            check(!noExchange.getFuture().get(10, TimeUnit.SECONDS).ack(), "a publish to an exchange that is not there was confirmed");
            Queues.depth(admin, "orders", MESSAGES);
        }
        try (ConfigurableApplicationContext context = App.start(List.of("spring.rabbitmq.publisher-confirm-type=simple"))) {
            boolean confirmed = context.getBean(RabbitTemplate.class).invoke(operations -> {
                for (int i = 0; i < MESSAGES; i++) {
                    operations.convertAndSend("", "orders", "order " + i);
                }
                return operations.waitForConfirms(10_000);
            });
            check(confirmed, "waitForConfirms says no");
            Queues.depth(context.getBean(AmqpAdmin.class), "orders", 2 * MESSAGES);
        }
    }
}
