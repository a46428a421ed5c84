package seed002;

import org.springframework.amqp.core.Binding;
import org.springframework.amqp.core.BindingBuilder;
import org.springframework.amqp.core.Queue;
import org.springframework.amqp.core.TopicExchange;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** What the diagrams show and an earlier module of the course prints: the exchange that orders are published to. */
@Configuration
public class OrdersConfig {

    @Bean
    TopicExchange ordersExchange() {
        return new TopicExchange("orders.exchange");
    }

    @Bean
    Binding ordersBinding(Queue ordersQueue, TopicExchange ordersExchange) {
        return BindingBuilder.bind(ordersQueue).to(ordersExchange).with("order.created");
    }
}
