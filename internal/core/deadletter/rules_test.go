package deadletter

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// apsaraRecord is record in a virtual host of ApsaraMQ's profile.
func apsaraRecord(rules Rules, deaths ...death) *History {
	h := new(History)
	rules.Profile = ApsaraMQ
	for _, d := range deaths {
		h.Record(&Event{Queue: d.queue, Reason: d.reason, Time: 1999, Expiration: d.expiration, Exchange: d.exchange, Keys: d.keys, Rules: &rules})
	}
	return h
}

// DL-22.6, DL-22.7: the headers and their reasons.
func TestDL_22_6_Headers(t *testing.T) {
	key := []string{"k"}
	h := apsaraRecord(Rules{LimitReason: "too_often"},
		death{"a", Rejected, "x", key, -1}, death{"a", Nacked, "", key, -1}, death{"a", DeliveryLimit, "", key, -1}, death{"b", Expired, "", key, -1},
		death{"a", Nacked, "", key, -1})
	want := []string{
		`x-death[0] = {count=i64 2, reason=str "nack", queue=str "a", time=time 1, exchange=str "", routing-keys=[str "k"]}`,
		`x-death[1] = {count=i64 1, reason=str "expired", queue=str "b", time=time 1, exchange=str "", routing-keys=[str "k"]}`,
		`x-death[2] = {count=i64 1, reason=str "too_often", queue=str "a", time=time 1, exchange=str "", routing-keys=[str "k"]}`,
		`x-death[3] = {count=i64 1, reason=str "reject", queue=str "a", time=time 1, exchange=str "x", routing-keys=[str "k"]}`,
		`x-death-total = i64 5`,
		`x-first-death-exchange = str "x"`, `x-first-death-queue = str "a"`, `x-first-death-reason = str "reject"`,
	}
	if diff := cmp.Diff(want, show(t, h.Headers())); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

// What the profile adds is read back as it was written, and divided like the rest.
func TestApsaraHistoryIsKept(t *testing.T) {
	h := apsaraRecord(Rules{LimitReason: "too_often"}, death{"a", Nacked, "x", []string{"k"}, 7}, death{"b", DeliveryLimit, "", []string{"k"}, -1})
	stored := h.Append(nil)
	got, err := Parse(stored)
	if err != nil {
		t.Fatal(err)
	}
	if got.Profile != ApsaraMQ || got.LimitReason != "too_often" || !bytes.Equal(got.Append(nil), stored) {
		t.Errorf("read back as %+v", got)
	}
	shared, own, ok := Divide(stored, nil, nil)
	if !ok || !bytes.Equal(Unite(nil, shared, own), stored) {
		t.Error("it was divided and united to something else")
	}
}

// DL-22.8 to DL-22.10: when a dead letter has no TTL in its target.
func TestDL_22_8_Rests(t *testing.T) {
	expired := func(queues ...string) (list []death) {
		for _, q := range queues {
			list = append(list, death{q, Expired, "", []string{"k"}, -1})
		}
		return list
	}
	loop := expired("a", "b")
	rejected := append(expired("a"), death{"b", Nacked, "", []string{"k"}, -1})
	for _, c := range []struct {
		name   string
		rules  Rules
		deaths []death
		target string
		want   bool
	}{
		{"DL-22.8 switched off", Rules{Profile: ApsaraMQ, MaxHops: 16}, expired("a"), "dlq", true},
		{"DL-22.8 switched on", Rules{Profile: ApsaraMQ, MaxHops: 16, ExpireDead: true}, expired("a"), "dlq", false},
		{"DL-22.9 a loop", Rules{Profile: ApsaraMQ, MaxHops: 16, ExpireDead: true}, loop, "a", true},
		{"DL-22.9 a loop with a rejection", Rules{Profile: ApsaraMQ, MaxHops: 16, ExpireDead: true}, rejected, "a", false},
		{"DL-22.9 onwards", Rules{Profile: ApsaraMQ, MaxHops: 16, ExpireDead: true}, loop, "c", false},
		{"DL-22.10 before the limit", Rules{Profile: ApsaraMQ, MaxHops: 3, ExpireDead: true}, loop, "c", false},
		{"DL-22.10 at the limit", Rules{Profile: ApsaraMQ, MaxHops: 2, ExpireDead: true}, loop, "c", true},
		{"DL-22.10 rejections count", Rules{Profile: ApsaraMQ, MaxHops: 2, ExpireDead: true}, rejected, "c", true},
		{"no dead letter", Rules{Profile: ApsaraMQ}, nil, "q", false},
		{"RabbitMQ's profile", Rules{}, loop, "a", false},
	} {
		if got := c.rules.Rests(apsaraRecord(c.rules, c.deaths...), c.target); got != c.want {
			t.Errorf("%s: rests is %v", c.name, got)
		}
	}
}

// DL-22.9: a loop is cut by RabbitMQ's rules only, and what both profiles call a rejection protects it.
func TestDL_22_9_CutCycles(t *testing.T) {
	if r := (&Rules{Profile: ApsaraMQ}); r.CutCycles() || r.Rejection(true) != Nacked || r.Rejection(false) != Rejected {
		t.Error("ApsaraMQ's rules")
	}
	if r := (&Rules{}); !r.CutCycles() || r.Rejection(true) != Rejected || r.Rejection(false) != Rejected {
		t.Error("RabbitMQ's rules")
	}
	if Nacked.Counted() != Rejected || Expired.Counted() != Expired || Reason(0).Valid() || !Nacked.Valid() || Reason(6).Valid() {
		t.Error("reasons")
	}
}

// What a client republishes with the headers of this profile is read for its origin too.
func TestApsaraCarried(t *testing.T) {
	h := apsaraRecord(Rules{LimitReason: "l"}, death{"a", Nacked, "x", []string{"k"}, -1}, death{"b", Rejected, "y", []string{"k"}, -1})
	var headers []byte
	for _, f := range h.Headers() {
		headers = append(append(append(headers, byte(len(f.Key))), f.Key...), f.Encoded...)
	}
	carried, ok := Carried(headers)
	exchange, _, _ := carried.Origin()
	if !ok || exchange != "x" {
		t.Errorf("origin %q, %v", exchange, ok)
	}
}
