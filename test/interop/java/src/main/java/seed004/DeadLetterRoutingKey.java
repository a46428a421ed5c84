package seed004;

import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import java.util.HashMap;
import java.util.Map;

/** The samples of "使用参数进行配置" (configuration by arguments): with the routing key. */
public class DeadLetterRoutingKey {
    public static void main(String[] argv) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(System.getenv("AMQP_URI"));
        Connection connection = factory.newConnection();
        Channel channel = connection.createChannel();

        channel.exchangeDeclare("some.exchange.name", "direct");

        Map<String, Object> args = new HashMap<String, Object>();
        args.put("x-dead-letter-exchange", "some.exchange.name");
        args.put("x-dead-letter-routing-key", "some-routing-key");
        channel.queueDeclare("myqueue", false, false, false, args);

        connection.close();
    }
}
