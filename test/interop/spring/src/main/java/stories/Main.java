package stories;

import interop.Interop;
import java.util.Map;

/** The stories by name; the file "stories" beside pom.xml lists them for the driver. */
public final class Main {
    private Main() {}

    public static void main(String[] args) {
        Interop.main(args, Map.ofEntries(
                Map.entry("confirms", Confirms::play),
                Map.entry("consume", Consume::simple),
                Map.entry("consume-direct", Consume::direct),
                Map.entry("reject", Reject::play),
                Map.entry("retry", Retry::play),
                Map.entry("reconnect", Reconnect::play),
                Map.entry("declare", Declare::play),
                Map.entry("rpc", Rpc::play),
                Map.entry("retry-stateless", Recover::stateless),
                Map.entry("retry-stateful", Recover::stateful),
                Map.entry("reject-recoverer", Recover::rejectAndDontRequeue),
                Map.entry("republish-recoverer", Recover::republish),
                Map.entry("delivery-limit", Recover::deliveryLimit),
                Map.entry("failing-listener", FailingListener::play),
                Map.entry("causes", Causes::play),
                Map.entry("delayed", Delayed::play),
                Map.entry("seed002-triggers", Seed002::triggers),
                Map.entry("seed002-dlq", Seed002::deadLetterQueue),
                Map.entry("seed002-parking-lot", Seed002::parkingLot)));
    }
}
