package broker

import (
	"fmt"
	"iter"

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
