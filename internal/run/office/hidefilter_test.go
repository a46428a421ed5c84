package office

import (
	"fmt"
	"strings"
	"testing"

	"bartleby.mq/internal/core/letter"
)

// The name of a header may itself be what a mask hides: no filter that is shown has it, whatever it is compared with.
func TestAShownFilterHidesNamesOfHeaders(t *testing.T) {
	m, err := letter.NewMask(letter.MaskRules{Patterns: []string{`cust-[0-9]+`}})
	if err != nil {
		t.Fatal(err)
	}
	for _, where := range []string{"header.cust-4711", "header.cust-4711=secret", "header.cust-4711~secret", "!header.cust-4711"} {
		for _, masked := range []bool{false, true} {
			if shown := fmt.Sprint(hideFilter(m, map[string][]string{"where": {where}}, masked)); strings.Contains(shown, "4711") || !masked && strings.Contains(shown, "secret") {
				t.Errorf("%s, made behind the mask %v, is shown as %s", where, masked, shown)
			}
		}
	}
}
