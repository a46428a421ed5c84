package share

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Who floods a shelf loses its own, the oldest first.
func TestWhoPutsMuchLosesItsOwn(t *testing.T) {
	s := NewShelf[string, int](10)
	for i, of := range []string{"a", "b", "a"} {
		if out := s.Put(of, i, 1); out != nil {
			t.Fatalf("%v is pushed out, and there is room", out)
		}
	}
	for i := range 1000 {
		out := s.Put("flood", 100+i, 1)
		if i < 7 && out != nil || i >= 7 && !slices.Equal(out, []int{100 + i - 7}) {
			t.Fatalf("the item %d of the flood pushes out %v", i, out)
		}
	}
	if !s.Has(0) || !s.Has(1) || !s.Has(2) {
		t.Error("others have lost something")
	}
	if out := s.Put("b", 3, 9); !slices.Equal(out, []int{1, 3}) {
		t.Errorf("one that is larger than what all others have pushes out %v", out)
	}
}

// A shelf that becomes smaller pushes out by the same rule.
func TestAShelfBecomesSmaller(t *testing.T) {
	s := NewShelf[string, int](4)
	for i, of := range []string{"a", "flood", "flood", "b"} {
		s.Put(of, i, 1)
	}
	if out := s.Resize(4); out != nil {
		t.Errorf("%v is pushed out, and there is room", out)
	}
	if out := s.Resize(2); !slices.Equal(out, []int{1, 0}) {
		t.Errorf("%v is pushed out", out)
	}
}

// Of owners that have as much the oldest item goes.
func TestAmongEqualsTheOldestGoes(t *testing.T) {
	s := NewShelf[int, int](3)
	for i := range 10 {
		if out := s.Put(i, i, 1); i >= 3 && !slices.Equal(out, []int{i - 3}) {
			t.Errorf("%d pushes out %v", i, out)
		}
	}
}

// Shelf against the plain rule: as long as there is too much, take who has most, and of equals whose oldest is older.
func TestAShelfIsShared(t *testing.T) {
	type item struct {
		of, name int
		size     int64
	}
	rapid.Check(t, func(t *rapid.T) {
		room := rapid.Int64Range(1, 20).Draw(t, "room")
		s := NewShelf[int, int](room)
		var model []item
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			name := rapid.IntRange(0, 15).Draw(t, "name")
			model = slices.DeleteFunc(model, func(i item) bool { return i.name == name })
			if rapid.IntRange(0, 3).Draw(t, "what") == 0 {
				s.Remove(name)
			} else {
				i := item{rapid.IntRange(0, 3).Draw(t, "owner"), name, rapid.Int64Range(1, 8).Draw(t, "size")}
				model = append(model, i)
				var want []int
				for {
					var all int64
					has := map[int]int64{}
					for _, i := range model {
						all += i.size
						has[i.of] += i.size
					}
					if all <= room {
						break
					}
					out := 0
					for at, i := range model {
						if has[i.of] > has[model[out].of] {
							out = at
						}
					}
					want = append(want, model[out].name)
					model = slices.Delete(model, out, out+1)
				}
				if out := s.Put(i.of, i.name, i.size); !slices.Equal(out, want) {
					t.Fatalf("%+v pushes out %v, want %v", i, out, want)
				}
			}
			if s.Len() != len(model) || s.taken > room || len(s.piles) != len(s.most) {
				t.Fatalf("%d items, want %d; %d of %d taken; %d piles, %d in the heap", s.Len(), len(model), s.taken, room, len(s.piles), len(s.most))
			}
			for _, i := range model {
				if !s.Has(i.name) {
					t.Fatalf("%+v is not there", i)
				}
			}
		}
	})
}
