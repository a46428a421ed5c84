package broker

import (
	"fmt"
	"iter"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/run/datadir"
	"bartleby.mq/internal/safety/held"
)

// PutRecords stores records that are no declarations, atomically; a nil value deletes a key. Each key begins with
// datadir.RecordPrefix. With sync they are on disk when it returns. An error means that the disk failed and the node
// is stopping. REQUIRES: nothing is locked.
func (b *Broker) PutRecords(records iter.Seq2[[]byte, []byte], sync bool) error {
	held.Nothing("the store of records")
	if err := b.data.State.Apply(records, sync); err != nil {
		err = fmt.Errorf("store: %w", err)
		b.OnFatal(err)
		return err
	}
	return nil
}

// RangeRecords calls f for each record whose key begins with datadir.RecordPrefix and prefix, in the order of keys,
// until f returns an error, and returns that error. Key and value are valid only during the call; the key is without
// datadir.RecordPrefix.
func (b *Broker) RangeRecords(prefix string, f func(key, value []byte) error) error {
	return b.data.State.Range([]byte(datadir.RecordPrefix+prefix), func(key, value []byte) error {
		return f(key[len(datadir.RecordPrefix):], value)
	})
}

// HasVHost says whether there is such a virtual host now and, if incarnation is not 0, whether the queue with this incarnation can
// have been in it, not in an earlier one of the same name. It waits for nothing, so that whoever keeps records of virtual hosts may
// ask with its own lock held (see OnVHostEnd).
func (b *Broker) HasVHost(name message.VHost, incarnation uint64) (there bool) {
	b.glance(func() {
		v, ok := b.state.VHost(name)
		there = ok && (incarnation == 0 || v.Had(incarnation))
	})
	return there
}

// OnVHostEnd calls f for each virtual host that is deleted, after it is gone from memory and before the store forgets it: what
// f removes from the store is gone before another virtual host can have the name, also after a crash. f must not wait for
// declarations, and neither may who holds a lock that f takes. It is told who deletes the virtual host, and is called before the node serves.
func (b *Broker) OnVHostEnd(f func(message.VHost, Doer)) { b.vhostEnds = append(b.vhostEnds, f) }

// OnRightsChange calls f whenever accounts or their permissions have changed, with the declarations locked: f does not block. What users of a backend may do changes without it.
func (b *Broker) OnRightsChange(f func()) {
	b.topo.Lock()
	defer b.topo.Unlock()
	b.rightsChange = f
}
