package stories;

import static interop.Interop.await;
import static interop.Interop.check;

import interop.Interop;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.springframework.amqp.AmqpException;
import org.springframework.amqp.core.AmqpAdmin;
import org.springframework.amqp.core.AnonymousQueue;
import org.springframework.amqp.core.Binding;
import org.springframework.amqp.core.BindingBuilder;
import org.springframework.amqp.core.FanoutExchange;
import org.springframework.amqp.core.Message;
import org.springframework.amqp.core.Queue;
import org.springframework.amqp.rabbit.annotation.RabbitListener;
import org.springframework.amqp.rabbit.config.DirectRabbitListenerContainerFactory;
import org.springframework.amqp.rabbit.connection.ConnectionFactory;
import org.springframework.amqp.rabbit.connection.CorrelationData;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.boot.amqp.autoconfigure.DirectRabbitListenerContainerFactoryConfigurer;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;

/**
 * The broker is killed: what was confirmed is there; listeners in both kinds of container come back by themselves, and
 * RabbitAdmin declares the exclusive queue with its binding again.
 */
final class Reconnect {
    private static final int MESSAGES = 20;

    private Reconnect() {}

    static void play() throws Exception {
        List<String> properties = List.of(
                "spring.rabbitmq.publisher-confirm-type=correlated",
                "spring.rabbitmq.listener.simple.prefetch=1",
                // what fails goes back: before the kill every order does, so all are in the queue when it comes
                "spring.rabbitmq.listener.simple.default-requeue-rejected=true");
        try (ConfigurableApplicationContext context = App.start(properties, Listeners.class)) {
            RabbitTemplate template = context.getBean(RabbitTemplate.class);
            Listeners listeners = context.getBean(Listeners.class);
            List<CorrelationData> sent = new ArrayList<>();
            for (int i = 0; i < MESSAGES; i++) {
                CorrelationData correlation = new CorrelationData("order " + i);
                template.convertAndSend("", "orders", "order " + i, correlation);
                sent.add(correlation);
            }
            for (CorrelationData correlation : sent) {
                check(correlation.getFuture().get(10, TimeUnit.SECONDS).ack(), "%s was refused", correlation.getId());
            }
            template.convertAndSend("news", "", "before");
            await("news before the kill", () -> listeners.news.contains("before"));

            Interop.restart();
            listeners.restarted.set(true);

            await("all orders at the simple container", () -> listeners.orders.size(), size -> size == MESSAGES);
            await("news at the direct container", () -> {
                try { // as long as its queue is not declared again there is nobody to hear it
                    template.convertAndSend("news", "", "after");
                } catch (AmqpException notYet) {
                    return false;
                }
                return listeners.news.contains("after");
            });
            Queues.depth(context.getBean(AmqpAdmin.class), "orders", 0);
        }
    }

    static class Listeners {
        final AtomicBoolean restarted = new AtomicBoolean();
        final Set<String> orders = ConcurrentHashMap.newKeySet();
        final Set<String> news = ConcurrentHashMap.newKeySet();

        @Bean
        static Queue ordersQueue() {
            return new Queue("orders");
        }

        @Bean
        static FanoutExchange newsExchange() {
            return new FanoutExchange("news");
        }

        @Bean
        static Queue newsQueue() {
            return new AnonymousQueue();
        }

        @Bean
        static Binding newsBinding(Queue newsQueue, FanoutExchange newsExchange) {
            return BindingBuilder.bind(newsQueue).to(newsExchange);
        }

        @Bean
        static DirectRabbitListenerContainerFactory direct(DirectRabbitListenerContainerFactoryConfigurer configurer, ConnectionFactory connections) {
            DirectRabbitListenerContainerFactory factory = new DirectRabbitListenerContainerFactory();
            configurer.configure(factory, connections);
            factory.setMonitorInterval(1_000L); // ms; it looks for consumers to restart every 10 s by default
            return factory;
        }

        @RabbitListener(queues = "orders")
        void order(Message message) {
            if (!restarted.get()) {
                throw new IllegalStateException("not yet");
            }
            orders.add(Queues.text(message));
        }

        @RabbitListener(queues = "#{newsQueue.name}", containerFactory = "direct")
        void news(Message message) {
            news.add(Queues.text(message));
        }
    }
}
