package stories;

import static interop.Interop.equal;
import static stories.Client.numbers;

import com.rabbitmq.client.amqp.Consumer;
import com.rabbitmq.client.amqp.Publisher;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.stream.Collectors;
import stories.Client.Delivery;
import stories.Client.Inbox;

/** Outcomes of what is published, and the credit of consumers. */
final class Consuming {
    private Consuming() {}

    static void confirms() throws Exception {
        try (Client client = new Client()) {
            client.management.queue("orders").declare();
            client.management.queue("elsewhere").declare();
            client.bind("elsewhere", "jobs", "job");
            client.publishNumbers("orders", 0, 50);
            try (Publisher publisher = client.connection.publisherBuilder().exchange("jobs").key("nowhere").build()) {
                equal(Publisher.Status.RELEASED, Client.outcome(publisher, publisher.message("lost".getBytes())), "outcome without a route");
            }
            client.ready(50, "orders", "messages");
        }
    }

    static void consume() throws Exception {
        try (Client client = new Client()) {
            client.management.queue("orders").declare();
            client.publishNumbers("orders", 0, 20);
            try (Inbox inbox = new Inbox(client, "orders", 5)) {
                List<Delivery> first = inbox.take(5);
                client.ready(15, "orders", "ready messages beyond the credit");
                // One by one the client would give credit again for two of them.
                Consumer.BatchContext three = first.get(0).context().batch(3);
                first.subList(0, 3).forEach(delivery -> three.add(delivery.context()));
                three.accept();
                inbox.take(3);
                client.ready(12, "orders", "ready messages after three were accepted");
                equal(0, inbox.waiting(), "messages beyond the credit");
            }
            try (Inbox inbox = new Inbox(client, "orders", 20)) {
                List<Delivery> rest = inbox.take(17);
                equal(numbers(3, 20), rest.stream().map(Delivery::body).collect(Collectors.toList()), "bodies");
                List<Boolean> want = new ArrayList<>(Collections.nCopies(5, false));
                want.addAll(Collections.nCopies(12, true));
                equal(want, rest.stream().map(d -> d.message().firstAcquirer()).collect(Collectors.toList()), "first-acquirer");
                rest.forEach(delivery -> delivery.context().accept());
            }
            client.ready(0, "orders", "messages left");
        }
    }

    static void pause() throws Exception {
        try (Client client = new Client()) {
            client.management.queue("orders").declare();
            try (Inbox inbox = new Inbox(client, "orders", 10)) {
                client.publishNumbers("orders", 0, 3);
                List<Delivery> before = inbox.take(3);
                inbox.consumer.pause();
                client.publishNumbers("orders", 3, 5);
                client.ready(2, "orders", "ready messages without credit");
                before.forEach(delivery -> delivery.context().accept());
                client.ready(2, "orders", "ready messages after the others were accepted");
                inbox.consumer.unpause();
                List<Delivery> after = inbox.take(2);
                equal(numbers(3, 5), after.stream().map(Delivery::body).collect(Collectors.toList()), "bodies");
                after.forEach(delivery -> delivery.context().accept());
            }
            client.ready(0, "orders", "messages left");
        }
    }
}
