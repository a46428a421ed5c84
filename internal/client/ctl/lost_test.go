package ctl

import (
	"strings"
	"testing"
)

// Why a letter is in the lost and found is said in words that name its queue, for each reason and for one that is not known yet.
func TestLostWhyIsSaidInWords(t *testing.T) {
	for _, why := range []string{"dlx_missing", "no_route", "no_dlx", "cycle", "target_refused", "later"} {
		text := lostWhy(why, "parcels")
		if text == "" || strings.Contains(text, "_") || (text == "it led nowhere") != (why == "later") {
			t.Errorf("%s: %q", why, text)
		}
	}
}
