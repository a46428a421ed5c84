package stories;

import interop.Interop;
import java.util.Map;

/** The stories by name; the file "stories" beside pom.xml lists them for the driver. */
public final class Main {
    private Main() {}

    public static void main(String[] args) {
        Interop.main(args, Map.of(
                "confirms", Confirms::play,
                "consume", Consume::play,
                "reject", DeadLetters::reject,
                "reject-quorum", DeadLetters::rejectQuorum,
                "retry", Retry::play,
                "reconnect", Reconnect::play,
                "reconnect-dead-letters", Reconnect::deadLetters,
                "max-attempts", DeadLetters::maxAttempts,
                "republish-to-dlq", DeadLetters::republish));
    }
}
