package office

import (
	"slices"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/mutation"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/datadir"
)

// Records of virtual hosts have keys as appendKey writes them. They end with their virtual host: whoever keeps some asks
// broker.OnVHostEnd, and deletes them there under the lock under which it writes them, after it has found with
// broker.HasVHost that the virtual host exists. So no record outlives its virtual host, and none is inherited with a name.

// endRecords deletes the records of a kind that are of a virtual host.
func endRecords(b *broker.Broker, kind string, vhost message.VHost) {
	var gone []mutation.Change
	_ = b.RangeRecords(string(appendName([]byte(kind), string(vhost))), func(key, _ []byte) error { // an error ends the node
		gone = append(gone, mutation.Change{Key: append([]byte(datadir.RecordPrefix), key...)})
		return nil
	})
	for some := range slices.Chunk(gone, 1000) {
		_ = b.PutRecords(mutation.All(some), false) // the deletion of the virtual host is written after it, and synced
	}
}

// endStrays deletes the records of a kind whose virtual hosts are gone: earlier versions have left them.
func endStrays(b *broker.Broker, kind string) error {
	strays := map[message.VHost]bool{}
	err := b.RangeRecords(kind, func(key, _ []byte) error {
		if name, _, ok := splitKey(key, kind); ok && !strays[message.VHost(name)] && !b.HasVHost(message.VHost(name), 0) {
			strays[message.VHost(name)] = true
		}
		return nil
	})
	for name := range strays {
		endRecords(b, kind, name)
	}
	return err
}
