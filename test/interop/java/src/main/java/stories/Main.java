package stories;

import interop.Interop;
import java.util.Map;

/** The stories by name; the file "stories" beside pom.xml lists them for the driver. */
public final class Main {
    private Main() {}

    public static void main(String[] args) {
        Interop.main(args, Map.ofEntries(
                Map.entry("confirms", Confirms::play),
                Map.entry("consume", Consume::play),
                Map.entry("reject", Reject::play),
                Map.entry("retry", Retry::play),
                Map.entry("close", Close::play),
                Map.entry("reconnect", Reconnect::play),
                Map.entry("reconnect-quorum", Reconnect::quorum),
                Map.entry("seed000-arguments", Seed000::arguments),
                Map.entry("seed000-profile", Seed000::profile),
                Map.entry("seed001-arguments", Seed001::arguments),
                Map.entry("seed001-routing-key", Seed001::routingKey),
                Map.entry("seed001-own-keys", Seed001::ownKeys),
                Map.entry("seed001-headers", Seed001::headers),
                Map.entry("seed001-cycle", Seed001::cycle),
                Map.entry("seed001-queue-expires", Seed001::queueExpires),
                Map.entry("seed001-permissions", Seed001::permissions),
                Map.entry("seed001-quorum", Seed001::quorum),
                Map.entry("seed003-arguments", Seed003::arguments),
                Map.entry("seed003-rejected", Seed003::rejected),
                Map.entry("seed003-expired", Seed003::expired),
                Map.entry("seed003-maxlen", Seed003::maxLength),
                Map.entry("seed003-headers", Seed003::headers),
                Map.entry("seed004-arguments", Seed004::arguments),
                Map.entry("seed004-headers", Seed004::headers)));
    }
}
