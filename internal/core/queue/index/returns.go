package index

import "slices"

// returns is the returns list: the entries in Returned, in the order in which they came back.
//
// One that leaves from the middle only strays: it stands there until those in front
// of it have gone, since very many may stand behind it. It cannot come to the list again before that: it would have
// to be delivered, and all that the list has is delivered first.
type returns struct {
	list   []ID
	strays map[ID]uint32 // of list, those that have left, and when: before which KeptReturns
	ghosts bool          // list may have entries that never were, as what is not logged ends with its process (RestoreMeta)
	keeps  uint32        // how many KeptReturns there were
	kept   *KeptReturns  // the one being collected, nil if none is
}

func (r *returns) enlist(id ID) { r.list = append(r.list, id) }

func (r *returns) unlist(id ID) {
	if len(r.list) > 0 && r.list[0] == id {
		r.list = r.list[1:] // or it would be found there again once it comes back
		return
	}
	if r.strays == nil {
		r.strays = map[ID]uint32{}
	}
	r.strays[id] = r.keeps + 1
}

// unstray says whether an entry, which leaves the front of the list then, has strayed.
func (r *returns) unstray(id ID) bool {
	in, ok := r.strays[id]
	if !ok {
		return false
	}
	delete(r.strays, id)
	if k := r.kept; k != nil && k.strayed(in) {
		if k.strays == nil {
			k.strays = map[ID]struct{}{}
		}
		k.strays[id] = struct{}{}
	}
	return true
}

// ReturnsAgain lets an entry that has left the returns list come to it again at once, which only a recovery needs.
func (ix *Index) ReturnsAgain(id ID) {
	r := &ix.returns
	if _, stray := r.strays[id]; stray { // seldom
		delete(r.strays, id)
		if at := slices.Index(r.list, id); at >= 0 {
			r.list = slices.Delete(r.list, at, at+1)
		}
	}
}

// drop empties the list, of which no entry is there any more.
func (r *returns) drop() {
	if r.kept != nil {
		for id := range r.strays {
			r.unstray(id)
		}
	}
	r.list, r.strays, r.ghosts = nil, nil, false
}

// firstReturned returns the first of the list, or takes it out if it is not there any more. REQUIRES: there is one.
func (ix *Index) firstReturned() (ID, Place) {
	r := &ix.returns
	if len(r.strays) == len(r.list) && !r.ghosts {
		r.drop() // very many may be left
		return 0, Place{}
	}
	id := r.list[0]
	if !r.unstray(id) {
		if at := ix.Find(id); at.In(Returned) {
			return id, at
		}
	} // else a ghost
	r.list = r.list[1:]
	return 0, Place{}
}

// Returned are the entries of the returns list, in its order.
func (ix *Index) Returned() (list []ID) {
	ix.dropGhosts()
	for _, id := range ix.returns.list {
		if _, stray := ix.returns.strays[id]; !stray {
			list = append(list, id)
		}
	}
	return list
}

// SetReturned makes the list that Returned has told the returns list. All of them are in Returned.
func (ix *Index) SetReturned(list []ID) { ix.returns = returns{list: list, keeps: ix.returns.keeps} }

// dropGhosts takes out of the list what is not there.
func (ix *Index) dropGhosts() {
	r := &ix.returns
	if !r.ghosts {
		return
	}
	r.ghosts = false
	r.list = slices.DeleteFunc(r.list, func(id ID) bool {
		_, stray := r.strays[id]
		return !stray && !ix.Find(id).In(Returned)
	})
}

// KeptReturns is what the returns list was at one moment. It may be very long, so that Collect goes through it in
// slices, while the queue goes on: that only appends to the list and takes from its front, so that this one is a slice of it.
type KeptReturns struct {
	List []ID // once Collect is done

	of      *returns
	version uint32 // by which strays know whether they had strayed
	listed  []ID   // the list, with strays
	passed  int    // so many of listed have been looked at
	strays  map[ID]struct{}
}

// KeepReturned begins to keep what the returns list is now. One that is not complete when the next one begins never will be.
func (ix *Index) KeepReturned() *KeptReturns {
	ix.dropGhosts()
	r := &ix.returns
	r.keeps++
	r.kept = &KeptReturns{of: r, version: r.keeps, listed: r.list}
	return r.kept
}

// strayed says whether an entry that has strayed in a version had done so when k began; 0: it has not strayed.
func (k *KeptReturns) strayed(in uint32) bool { return in != 0 && in <= k.version }

// Collect goes on with what KeepReturned has begun: it looks at limit entries and says whether there are more.
func (k *KeptReturns) Collect(limit int) (looked int, more bool) {
	if k.passed == 0 && len(k.of.strays)+len(k.strays) == 0 {
		k.List, k.passed = k.listed, len(k.listed)
	}
	for ; k.passed < len(k.listed); k.passed++ {
		if looked == limit {
			return looked, true
		}
		looked++
		id := k.listed[k.passed]
		if _, was := k.strays[id]; !was && !k.strayed(k.of.strays[id]) {
			k.List = append(k.List, id)
		}
	}
	if k.of.kept == k {
		k.of.kept = nil
	}
	return looked, false
}
