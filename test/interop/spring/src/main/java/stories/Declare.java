package stories;

import static interop.Interop.check;
import static interop.Interop.equal;

import java.util.List;
import java.util.Map;
import org.springframework.amqp.AmqpIOException;
import org.springframework.amqp.core.AmqpAdmin;
import org.springframework.amqp.core.Binding;
import org.springframework.amqp.core.BindingBuilder;
import org.springframework.amqp.core.Declarables;
import org.springframework.amqp.core.DirectExchange;
import org.springframework.amqp.core.ExchangeBuilder;
import org.springframework.amqp.core.FanoutExchange;
import org.springframework.amqp.core.HeadersExchange;
import org.springframework.amqp.core.Message;
import org.springframework.amqp.core.Queue;
import org.springframework.amqp.core.QueueBuilder;
import org.springframework.amqp.core.QueueInformation;
import org.springframework.amqp.core.TopicExchange;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;

/** RabbitAdmin declares what the application lists, and again; it asks, purges, unbinds and deletes. */
final class Declare {
    private Declare() {}

    static void play() throws Exception {
        try (ConfigurableApplicationContext context = App.start(List.of(), Topology.class)) {
            RabbitTemplate template = context.getBean(RabbitTemplate.class);
            AmqpAdmin admin = context.getBean(AmqpAdmin.class);
            admin.initialize(); // all of it is there now; once more changes nothing
            admin.initialize();

            template.convertAndSend("topics", "a.b", "by topic");
            template.convertAndSend("matches", "", "by headers", message -> {
                message.getMessageProperties().setHeader("kind", "order");
                return message;
            });
            template.convertAndSend("chain", "direct", "by exchange"); // chain -> everyone -> queue
            template.convertAndSend("topics", "a.b.c", "to the alternate exchange");
            for (String text : List.of("by topic", "by headers", "by exchange", "to the alternate exchange")) {
                equal(text, Queues.text(Queues.take(template, "everything")), "body");
            }
            for (int priority : new int[] {1, 5}) {
                template.convertAndSend("", "ordered", "priority " + priority, message -> {
                    message.getMessageProperties().setPriority(priority);
                    return message;
                });
            }
            Queues.depth(admin, "ordered", 2);
            equal("priority 5", Queues.text(Queues.take(template, "ordered")), "first by priority");

            QueueInformation information = admin.getQueueInfo("ordered");
            equal(1L, (long) information.getMessageCount(), "messages");
            equal(0L, (long) information.getConsumerCount(), "consumers");
            equal(1, admin.purgeQueue("ordered"), "purged");
            check(admin.getQueueInfo("nowhere") == null, "a queue that is not there has properties");
            Queue named = admin.declareQueue();
            check(named.getName().length() > 4, "the name of the broker is %s", named.getName());
            refused(admin);
            Message left = template.receive("ordered");
            check(left == null, "something is left: %s", left);
            admin.removeBinding(new Binding("everything", Binding.DestinationType.QUEUE, "topics", "a.*", Map.of()));
            check(admin.deleteQueue("everything"), "the queue was not deleted");
            check(admin.deleteExchange("topics"), "the exchange was not deleted");
        }
    }

    /** The same queue with other arguments: 406, and the admin throws (ignore-declaration-exceptions is off). */
    private static void refused(AmqpAdmin admin) {
        try {
            admin.declareQueue(QueueBuilder.durable("ordered").build());
        } catch (AmqpIOException failure) {
            String text = failure.getCause().getCause() == null ? "" : failure.getCause().getCause().getMessage();
            check(text.contains("406") && text.contains("PRECONDITION_FAILED - inequivalent arg 'x-max-priority'"), "it says %s", text);
            return;
        }
        check(false, "a queue may be declared with other arguments");
    }

    static class Topology {
        @Bean
        Declarables topology() {
            Queue everything = QueueBuilder.durable("everything").maxLengthBytes(1 << 20).build();
            TopicExchange topics = ExchangeBuilder.topicExchange("topics").alternate("everyone").build();
            FanoutExchange everyone = ExchangeBuilder.fanoutExchange("everyone").build();
            HeadersExchange matches = ExchangeBuilder.headersExchange("matches").build();
            DirectExchange chain = ExchangeBuilder.directExchange("chain").build();
            return new Declarables(
                    everything, topics, everyone, matches, chain,
                    QueueBuilder.durable("ordered").maxPriority(9).build(),
                    BindingBuilder.bind(everything).to(topics).with("a.*"),
                    BindingBuilder.bind(everything).to(everyone),
                    BindingBuilder.bind(everything).to(matches).where("kind").matches("order"),
                    BindingBuilder.bind(everyone).to(chain).with("direct"));
        }
    }
}
