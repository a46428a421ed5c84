package mutation

import "testing"

func TestLogKeepsOrder(t *testing.T) {
	var l Log
	l.Put("a", map[string]int{"v": 1})
	l.Delete("a")
	var got []string
	for k, v := range All(l.Take()) {
		got = append(got, string(k)+"="+string(v))
		if len(got) == 2 && v != nil {
			t.Error("a deletion has a value")
		}
	}
	if len(got) != 2 || got[0] != `a={"v":1}` || got[1] != "a=" {
		t.Errorf("got %q", got)
	}
	if left := l.Take(); left != nil {
		t.Errorf("taken twice: %v", left)
	}
}

func TestKeysDoNotMix(t *testing.T) {
	if a, b := Key("k", "a/b", "c"), Key("k", "a", "b/c"); a == b {
		t.Errorf("two names share the key %q", a)
	}
	if got := Key("k", "/", "q%\x00"); got != "k/%2F/q%25%00" {
		t.Errorf("the key is %q", got)
	}
}
