package stories;

import static interop.Interop.check;
import static interop.Interop.equal;

import interop.Deaths;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.springframework.amqp.core.AmqpAdmin;
import org.springframework.amqp.core.Message;
import org.springframework.amqp.core.Queue;
import org.springframework.amqp.core.QueueBuilder;
import org.springframework.amqp.rabbit.annotation.RabbitListener;
import org.springframework.amqp.rabbit.config.RetryInterceptorBuilder;
import org.springframework.amqp.rabbit.config.SimpleRabbitListenerContainerFactory;
import org.springframework.amqp.rabbit.connection.ConnectionFactory;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.amqp.rabbit.retry.MessageRecoverer;
import org.springframework.amqp.rabbit.retry.RejectAndDontRequeueRecoverer;
import org.springframework.amqp.rabbit.retry.RepublishMessageRecoverer;
import org.springframework.boot.amqp.autoconfigure.SimpleRabbitListenerContainerFactoryConfigurer;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;

/** What Spring AMQP does with a message whose listener fails: retries in the process or by the broker, then a recoverer. */
final class Recover {
    private static final List<String> STATELESS = List.of(
            "spring.rabbitmq.listener.simple.retry.enabled=true",
            "spring.rabbitmq.listener.simple.retry.max-retries=2",
            "spring.rabbitmq.listener.simple.retry.initial-interval=10ms");

    private Recover() {}

    /** Boot's retry interceptor without state: three attempts on one delivery, then the message is rejected. */
    static void stateless() throws Exception {
        try (ConfigurableApplicationContext context = App.start(STATELESS, WorkQueues.class, Listener.class)) {
            rejectedAfter(context, List.of(false, false, false));
        }
    }

    /** RejectAndDontRequeueRecoverer as a bean, its exception's text and cause in nobody's header: the broker rejects. */
    static void rejectAndDontRequeue() throws Exception {
        try (ConfigurableApplicationContext context = App.start(STATELESS, WorkQueues.class, Listener.class, Rejecting.class)) {
            rejectedAfter(context, List.of(false, false, false));
        }
    }

    static class Rejecting {
        @Bean
        MessageRecoverer recoverer() {
            return new RejectAndDontRequeueRecoverer("retries exhausted");
        }
    }

    /** The interceptor with state: each attempt is a delivery of its own; the id of the message tells it from others. */
    static void stateful() throws Exception {
        try (ConfigurableApplicationContext context = App.start(List.of(), WorkQueues.class, Listener.class, Stateful.class)) {
            rejectedAfter(context, List.of(false, true, true));
        }
    }

    static class Stateful {
        @Bean
        SimpleRabbitListenerContainerFactory rabbitListenerContainerFactory(
                SimpleRabbitListenerContainerFactoryConfigurer configurer, ConnectionFactory connections) {
            SimpleRabbitListenerContainerFactory factory = new SimpleRabbitListenerContainerFactory();
            configurer.configure(factory, connections);
            factory.setAdviceChain(RetryInterceptorBuilder.stateful()
                    .maxRetries(2)
                    .backOffOptions(10, 2, 100)
                    .recoverer(new RejectAndDontRequeueRecoverer())
                    .build());
            return factory;
        }
    }

    private static void rejectedAfter(ConfigurableApplicationContext context, List<Boolean> redelivered) throws Exception {
        RabbitTemplate template = context.getBean(RabbitTemplate.class);
        Listener listener = context.getBean(Listener.class);
        template.convertAndSend("", "work", "order", message -> {
            message.getMessageProperties().setMessageId("order-1");
            return message;
        });
        Message dead = Queues.take(template, "work.dlq");
        Queues.cameBy("work.dlx", "dead", dead);
        equal("order-1", dead.getMessageProperties().getMessageId(), "message id");
        Deaths.check(Queues.headers(dead), 0, "work", "rejected", 1, "", List.of("work"));
        equal(redelivered,
                listener.attempts.stream().map(message -> message.getMessageProperties().isRedelivered()).collect(Collectors.toList()),
                "redelivered of the attempts");
        Queues.depth(context.getBean(AmqpAdmin.class), "work", 0);
    }

    /** RepublishMessageRecoverer: the message is published to an error exchange with what was wrong; it did not die. */
    static void republish() throws Exception {
        try (ConfigurableApplicationContext context = App.start(STATELESS, WorkQueues.class, Listener.class, Republishing.class)) {
            RabbitTemplate template = context.getBean(RabbitTemplate.class);
            template.convertAndSend("", "work", "order", message -> {
                message.getMessageProperties().setHeader("customer", 7);
                return message;
            });
            Message failed = Queues.take(template, "work.errors");
            equal("order", Queues.text(failed), "body");
            Queues.cameBy("", "work.errors", failed);
            Map<String, Object> headers = Queues.headers(failed);
            equal("no stock for order", headers.get("x-exception-message"), "x-exception-message");
            equal("", headers.get("x-original-exchange"), "x-original-exchange");
            equal("work", headers.get("x-original-routingKey"), "x-original-routingKey");
            equal(7, headers.get("customer"), "the header of the publisher");
            String stack = headers.get("x-exception-stacktrace").toString();
            check(stack.contains("IllegalStateException: no stock for order"), "x-exception-stacktrace is %s", stack);
            equal(0, Deaths.of(headers).size(), "entries of x-death");
            equal(3, context.getBean(Listener.class).attempts.size(), "attempts");

            // The longest stack that the recoverer sends: a content header that all but fills a frame.
            template.convertAndSend("work", "deep");
            stack = Queues.headers(Queues.take(template, "work.errors")).get("x-exception-stacktrace").toString();
            check(stack.length() > 100_000, "the stack is of %d characters", stack.length());
            Queues.depth(context.getBean(AmqpAdmin.class), "work", 0);
            Queues.depth(context.getBean(AmqpAdmin.class), "work.dlq", 0);
        }
    }

    static class Republishing {
        @Bean
        Queue errors() {
            return QueueBuilder.durable("work.errors").build();
        }

        @Bean
        MessageRecoverer recoverer(RabbitTemplate template) {
            return new RepublishMessageRecoverer(template, "", "work.errors").includeStackTrace(true);
        }
    }

    /**
     * The delivery limit of a quorum queue. What Spring does by itself with a message whose listener fails is a nack with
     * requeue, which counts (DL-11.5).
     */
    static void deliveryLimit() throws Exception {
        try (ConfigurableApplicationContext context = App.start(List.of(), Quorum.class)) {
            RabbitTemplate template = context.getBean(RabbitTemplate.class);
            Quorum quorum = context.getBean(Quorum.class);
            template.convertAndSend("work", "poison");
            Message dead = Queues.take(template, "dead");
            Deaths.check(Queues.headers(dead), 0, "work", "delivery_limit", 1, "", List.of("work"));
            equal(Arrays.asList(null, 1L, 2L), quorum.headers("x-delivery-count"), "x-delivery-count of the deliveries");
            equal(Arrays.asList(null, 1L, 2L), quorum.headers("x-acquired-count"), "x-acquired-count of the deliveries");
        }
    }

    static class Quorum extends WorkQueues.Failing {
        @Bean
        Queue work() {
            return QueueBuilder.durable("work").quorum().deliveryLimit(2).deadLetterExchange("").deadLetterRoutingKey("dead").build();
        }

        @Bean
        Queue dead() {
            return QueueBuilder.durable("dead").quorum().build();
        }

        @Override
        @RabbitListener(queues = "work")
        void fail(Message message) {
            super.fail(message);
        }

        List<Object> headers(String name) {
            return attempts.stream().map(message -> Queues.headers(message).get(name)).collect(Collectors.toList());
        }
    }

    static class Listener extends WorkQueues.Failing {
        @Override
        @RabbitListener(queues = "work")
        void fail(Message message) {
            if (Queues.text(message).equals("deep")) {
                IllegalStateException failure = new IllegalStateException("at the bottom");
                StackTraceElement[] frames = new StackTraceElement[4_000];
                Arrays.fill(frames, new StackTraceElement("stories.Recover", "deep", "Recover.java", 1));
                failure.setStackTrace(frames);
                throw failure;
            }
            super.fail(message);
        }
    }
}
