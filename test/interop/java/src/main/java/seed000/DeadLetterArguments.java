package seed000;

import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import java.util.HashMap;
import java.util.Map;

/** The sample of the section "Client". */
public class DeadLetterArguments {
    public static void main(String[] argv) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(System.getenv("AMQP_URI"));
        Connection connection = factory.newConnection();
        Channel channel = connection.createChannel();

        channel.exchangeDeclare("some.exchange.name", "direct");
        Map<String, Object> arguments = new HashMap<String, Object>();
        arguments.put("x-dead-letter-exchange", "some.exchange.name");
        arguments.put("x-dead-letter-routing-key", "demo-routing-key");
        channel.queueDeclare("MyQueue", false, false, false, arguments);

        connection.close();
    }
}
