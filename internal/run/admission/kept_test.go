package admission

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
)

// inside says whether a text is a part of another's memory, which it keeps.
func inside(part, whole string) bool {
	at, from := uintptr(unsafe.Pointer(unsafe.StringData(part))), uintptr(unsafe.Pointer(unsafe.StringData(whole)))
	return part != "" && at >= from && at < from+uintptr(len(whole))
}

// What is remembered of a login, or of a question, does not keep the header or frame that its names came in.
func TestNamesThatAreRememberedKeepNothingElse(t *testing.T) {
	sent := fmt.Sprint(strings.Repeat("x", 100), strings.Repeat("y", 48_000)) // made here: no constant of the program's
	g := newGuesser(t, ThrottleLimits{Free: 1, Most: time.Second})
	g.fail("192.0.2.1", sent[:200])
	g.fail("192.0.2.1", sent[:20])
	for _, k := range g.th.counts.Keys() {
		if inside(k.user, sent) {
			t.Error("a count keeps all that was sent")
		}
	}
	b := new(counted)
	c := NewCache(b, b, time.Minute, true)
	_, _ = c.Login(context.Background(), auth.Credentials{User: sent[:10], Password: "p"})
	for _, k := range c.logins.Keys() {
		if inside(k.user, sent) {
			t.Error("a login that is remembered keeps all that was sent")
		}
	}
	_ = c.Allow(context.Background(), Question{
		User: sent[:5], Tags: sent[5:10], VHost: message.VHost(sent[10:15]),
		Resource: topology.Resource{VHost: message.VHost(sent[15:20]), Name: sent[20:30], Key: sent[30:40]},
	})
	for _, q := range c.doors.Keys() {
		texts(reflect.ValueOf(q), func(field string) {
			if field == "" || inside(field, sent) {
				t.Errorf("an answer that is remembered keeps all that was sent, or %q was not asked", field)
			}
		})
	}
	if g.th.counts.Len() != 3 || c.logins.Len() != 1 || c.doors.Len() != 1 {
		t.Errorf("%d counts, %d logins, %d answers", g.th.counts.Len(), c.logins.Len(), c.doors.Len())
	}
}

// texts calls f for all texts of ours in a value.
func texts(v reflect.Value, f func(string)) {
	switch v.Kind() {
	case reflect.String:
		f(v.String())
	case reflect.Struct:
		if v.Type() != reflect.TypeFor[netip.Addr]() {
			for i := range v.NumField() {
				texts(v.Field(i), f)
			}
		}
	}
}
