package stories;

import static interop.Interop.await;
import static interop.Interop.check;
import static interop.Interop.equal;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import org.springframework.amqp.core.Message;
import org.springframework.amqp.core.MessageProperties;
import org.springframework.amqp.rabbit.annotation.Exchange;
import org.springframework.amqp.rabbit.annotation.Queue;
import org.springframework.amqp.rabbit.annotation.QueueBinding;
import org.springframework.amqp.rabbit.annotation.RabbitListener;
import org.springframework.amqp.rabbit.connection.CorrelationData;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.context.ConfigurableApplicationContext;

/** A listener of a delayed exchange gets what waits in the order of its moments, and sends what failed through it again. */
final class Delayed {
    private static final String EXCHANGE = "reminders.later";

    private Delayed() {}

    static void play() throws Exception {
        List<String> correlated = List.of(
                "spring.rabbitmq.publisher-confirm-type=correlated",
                "spring.rabbitmq.publisher-returns=true",
                "spring.rabbitmq.template.mandatory=true");
        try (ConfigurableApplicationContext context = App.start(correlated, Reminders.class)) {
            RabbitTemplate template = context.getBean(RabbitTemplate.class);
            List<CorrelationData> sent = new ArrayList<>();
            long began = System.nanoTime();
            sent.add(send(template, "late", 900));
            sent.add(send(template, "early", 300));
            sent.add(send(template, "now", 0));
            sent.add(send(template, "in fifty days", TimeUnit.DAYS.toMillis(50)));
            for (CorrelationData correlation : sent) {
                check(correlation.getFuture().get(10, TimeUnit.SECONDS).ack(), "%s was refused", correlation.getId());
                check(correlation.getReturned() == null, "%s came back", correlation.getId());
            }
            List<String> got = context.getBean(Reminders.class).got;
            await("all but one came", () -> got.size() == 4);
            check(System.nanoTime() - began >= TimeUnit.MILLISECONDS.toNanos(900), "they came too early");
            equal(List.of("now 0", "early 300", "early again 150", "late 900"), List.copyOf(got), "what the listener saw");
        }
    }

    private static CorrelationData send(RabbitTemplate template, String text, long delay) {
        CorrelationData correlation = new CorrelationData(text);
        template.convertAndSend(EXCHANGE, "remind.ada", text, message -> {
            if (delay > MessageProperties.X_DELAY_MAX) { // which is 49 days, the plugin's limit
                message.getMessageProperties().setHeader(MessageProperties.X_DELAY, delay);
            } else if (delay > 0) {
                message.getMessageProperties().setDelayLong(delay);
            }
            return message;
        }, correlation);
        return correlation;
    }

    static class Reminders {
        final List<String> got = new CopyOnWriteArrayList<>();
        private final ObjectProvider<RabbitTemplate> template;

        Reminders(ObjectProvider<RabbitTemplate> template) {
            this.template = template;
        }

        @RabbitListener(bindings = @QueueBinding(
                value = @Queue(name = "reminders", durable = "true"),
                exchange = @Exchange(name = EXCHANGE, type = "topic", delayed = "true"),
                key = "remind.#"))
        void handle(Message message) {
            String text = Queues.text(message);
            Long delay = message.getMessageProperties().getReceivedDelayLong();
            got.add(text + " " + (delay == null ? 0 : delay));
            if (text.equals("early")) {
                send(template.getObject(), "early again", 150);
            }
        }
    }
}
