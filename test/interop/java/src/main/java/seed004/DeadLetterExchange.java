package seed004;

import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import java.util.HashMap;
import java.util.Map;

/** The first sample of "使用参数进行配置" (configuration by arguments). */
public class DeadLetterExchange {
    public static void main(String[] argv) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(System.getenv("AMQP_URI"));
        Connection connection = factory.newConnection();
        Channel channel = connection.createChannel();

        channel.exchangeDeclare("some.exchange.name", "direct");

        Map<String, Object> args = new HashMap<String, Object>();
        args.put("x-dead-letter-exchange", "some.exchange.name");
        channel.queueDeclare("myqueue", false, false, false, args);

        connection.close();
    }
}
