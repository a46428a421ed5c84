package topology

import "testing"

// A virtual host knows the queues of another that had its name by their numbers, also after a restart and a change of its
// metadata, and takes one for its own that a repair puts into it.
func TestAVHostHadNoQueueOfItsPredecessor(t *testing.T) {
	f := newFixture(t, Options{})
	f.Reserve()
	old := f.queue(durableQueue("q")).Incarnation
	f.save()
	if !f.vhost().Had(old) {
		t.Error("the first does not know its own")
	}
	if _, err := f.DeleteVHost(vh); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.PutVHost(vh, Metadata{}); err != nil {
		t.Fatal(err)
	}
	other := f.queue(durableQueue("other")).Incarnation
	for _, step := range []func(){
		func() {},
		func() {
			if _, _, err := f.PutVHost(vh, Metadata{Description: "changed"}); err != nil {
				t.Fatal(err)
			}
		},
		func() { f.save(); f = f.restart() },
	} {
		step()
		if f.vhost().Had(old) || !f.vhost().Had(other) {
			t.Errorf("the old one: %t, its own: %t", f.vhost().Had(old), f.vhost().Had(other))
		}
	}
	if _, err := f.Readmit(Readmitted{VHost: vh, Name: "q", Incarnation: old}); err != nil {
		t.Fatal(err)
	}
	f.save()
	if f = f.restart(); !f.vhost().Had(old) {
		t.Error("the one that was put into it is not its own")
	}
	last := f.queue(durableQueue("last")).Incarnation
	if _, _, err := f.PutVHost("w", Metadata{}); err != nil {
		t.Fatal(err)
	}
	f.save()
	delete(f.store, counterKey)
	f = f.restart()
	if n := f.queue(durableQueue("next")).Incarnation; n <= last {
		t.Errorf("with the counter lost, the number %d comes after %d", n, last)
	}
}
