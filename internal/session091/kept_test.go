package session091

import (
	"reflect"
	"testing"

	"bartleby.mq/internal/partition"
)

// A channel does not keep the memory of its largest transaction.
func TestAnEmptyTransactionKeepsLittle(t *testing.T) {
	tx := transaction{
		ops: make([]partition.Op, 100_000), settles: make([]uint64, 100_000), returns: make([]byte, 10<<20), replies: make([]heldReply, 100_000),
	}
	tx.reset()
	if cap(tx.ops) > keptOps || cap(tx.settles) > keptOps || cap(tx.returns) > keptReturns || cap(tx.replies) > keptOps {
		t.Errorf("%d operations, %d tags, %d bytes of returns and %d replies are kept", cap(tx.ops), cap(tx.settles), cap(tx.returns), cap(tx.replies))
	}
	tx.ops = append(tx.ops, make([]partition.Op, 10)...)
	kept := cap(tx.ops)
	tx.reset()
	if len(tx.ops) != 0 || cap(tx.ops) != kept {
		t.Error("a small transaction keeps nothing for the next")
	}
}

// BR-12.4: what is counted of a reply is no less than what it takes, while a list grows by a quarter.
func TestBR_12_4_RepliesAreCountedAsWhatTheyTake(t *testing.T) {
	if takes := int(reflect.TypeFor[item]().Size())*5/4 + int(reflect.TypeFor[reply]().Size()) + 2*16; takes > replyBytes {
		t.Errorf("a reply takes %d bytes and is counted as %d", takes, replyBytes)
	}
}
