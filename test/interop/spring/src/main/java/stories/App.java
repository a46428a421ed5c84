package stories;

import interop.Interop;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.springframework.boot.Banner;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.ConfigurableApplicationContext;

/** The Spring Boot application that every story starts: what Boot configures by itself, and the classes of the story. */
@EnableAutoConfiguration
public class App {
    /** Starts it. Properties are given as "name=value"; closing the context ends the application. */
    static ConfigurableApplicationContext start(List<String> properties, Class<?>... sources) {
        Map<String, Object> defaults = new HashMap<>();
        defaults.put("spring.rabbitmq.addresses", Interop.uri());
        defaults.put("logging.level.root", "error"); // failing listeners are what is played, each would print its stack
        defaults.put("spring.rabbitmq.listener.simple.prefetch", "10");
        for (String property : properties) {
            String[] pair = property.split("=", 2);
            defaults.put(pair[0], pair[1]);
        }
        List<Class<?>> all = new ArrayList<>(List.of(sources));
        all.add(0, App.class);
        SpringApplication application = new SpringApplication(all.toArray(Class<?>[]::new));
        application.setWebApplicationType(WebApplicationType.NONE);
        application.setBannerMode(Banner.Mode.OFF);
        application.setDefaultProperties(defaults);
        return application.run();
    }
}
