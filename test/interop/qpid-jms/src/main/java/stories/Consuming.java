package stories;

import static interop.Interop.check;
import static interop.Interop.equal;
import static stories.Client.numbers;

import interop.Interop;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import java.util.ArrayList;
import java.util.List;

/** Outcomes of what is published, the credit of consumers, and what a kill leaves. */
final class Consuming {
    private Consuming() {}

    static void confirms() throws Exception {
        Client.declare("orders", "{}");
        Client.declare("elsewhere", "{}");
        Client.bind("elsewhere", "jobs", "job");
        try (Client client = Client.connect(10)) {
            client.publishNumbers("/queues/orders", 50);
            MessageProducer nowhere = client.producer("/exchanges/jobs/nowhere");
            try {
                nowhere.send(client.session.createTextMessage("lost"));
                throw new AssertionError("a message without a route was accepted");
            } catch (JMSException refused) {
                check(refused.getMessage().contains("released"), "the outcome without a route: %s", refused.getMessage());
            }
        }
        Client.ready(50, "orders");
    }

    static void consume() throws Exception {
        Client.declare("orders", "{}");
        try (Client client = Client.connect(5)) {
            client.publishNumbers("/queues/orders", 20);
            try (MessageConsumer consumer = client.consumer("orders")) {
                Client.ready(15, "orders"); // what the credit leaves
                for (String want : numbers(0, 3)) {
                    Message message = Client.take(consumer);
                    equal(want, Client.body(message), "body");
                    message.acknowledge();
                }
            }
            try (MessageConsumer consumer = client.consumer("orders")) {
                for (String want : numbers(3, 20)) {
                    Message message = Client.take(consumer);
                    equal(want, Client.body(message), "body");
                    message.acknowledge();
                }
            }
        }
        Client.ready(0, "orders");
    }

    /** Without prefetch each receive gives a credit, and drains it when its time is over. */
    static void drain() throws Exception {
        Client.declare("orders", "{}");
        try (Client client = Client.connect(0)) {
            client.publishNumbers("/queues/orders", 3);
            try (MessageConsumer consumer = client.consumer("orders")) {
                for (String want : numbers(0, 3)) {
                    Message message = Client.take(consumer);
                    equal(want, Client.body(message), "body");
                    message.acknowledge();
                }
                equal(null, consumer.receive(200), "what an empty queue gives");
                equal(null, consumer.receiveNoWait(), "what an empty queue gives at once");
                client.publish("/queues/orders", "3");
                Client.ready(1, "orders"); // no credit is left for it
                Message last = consumer.receiveNoWait();
                check(last != null, "a message that is there does not come at once");
                equal("3", Client.body(last), "body");
                last.acknowledge();
            }
        }
        Client.ready(0, "orders");
    }

    /** The client connects again by itself; what it held comes again. */
    static void reconnect() throws Exception {
        Client.declare("work", "{}");
        Client.bind("work", "jobs", "job");
        try (Client client = Client.connectForGood(3)) {
            client.publishNumbers("/exchanges/jobs/job", 10);
            MessageConsumer consumer = client.consumer("work");
            for (int i = 0; i < 3; i++) {
                Client.take(consumer).acknowledge();
            }
            Interop.restart();
            client.publish("/exchanges/jobs/job", "10");
            List<String> bodies = new ArrayList<>();
            while (!bodies.contains("10")) {
                Message message = Client.take(consumer);
                bodies.add(Client.body(message));
                message.acknowledge();
            }
            // Acknowledgements have no answer: the first 3 may come again.
            int again = Math.max(bodies.size() - 8, 0);
            equal(numbers(3 - again, 11), bodies, "bodies");
        }
    }
}
