package stories;

import interop.Interop;
import java.util.Map;

/** The stories by name; the file "stories" beside pom.xml lists them for the driver. */
public final class Main {
    private Main() {}

    public static void main(String[] args) {
        Interop.main(args, Map.of(
                "confirms", Consuming::confirms,
                "consume", Consuming::consume,
                "drain", Consuming::drain,
                "reconnect", Consuming::reconnect,
                "reject", Deaths::reject,
                "retry", Deaths::retry,
                "modify", Deaths::modify,
                "release", Deaths::release));
    }
}
