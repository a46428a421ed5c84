package seed002;

import org.springframework.amqp.core.Binding;
import org.springframework.amqp.core.BindingBuilder;
import org.springframework.amqp.core.DirectExchange;
import org.springframework.amqp.core.Queue;
import org.springframework.amqp.core.QueueBuilder;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** Sections 4 and 5: the retry queue as printed but for its TTL, and what the diagrams add to it. */
@Configuration
public class RetryConfig {

    @Bean
    Queue ordersRetryQueue(@Value("${orders.retry.ttl:30000}") int ttl) {
        return QueueBuilder.durable("orders.retry.queue")
                .ttl(ttl)                                 // wait 30s
                .deadLetterExchange("orders.exchange")    // then back to main
                .deadLetterRoutingKey("order.created")
                .build();
    }

    /** The arrow "reject (transient)": a dead order waits in the retry queue, and a copy of it is in the DLQ. */
    @Bean
    Binding retryBinding(Queue ordersRetryQueue, DirectExchange ordersDlx) {
        return BindingBuilder.bind(ordersRetryQueue).to(ordersDlx).with("orders.dead");
    }

    @Bean
    Queue ordersParkingLot() {
        return QueueBuilder.durable("orders.parking-lot.queue").build();
    }
}
