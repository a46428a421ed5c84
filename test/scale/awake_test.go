package scale

import (
	"os"
	"testing"
)

// keepAwake asks the system that no processor sleeps until the test ends: by the file that
// Linux has for it (power management's quality of service: the latency that is allowed, in
// microseconds, for as long as the file is open). A processor of a virtual machine that
// sleeps is given to other machines, and is back late, by many milliseconds when the host
// is busy: who asks what the broker does within 20 ms sees that and little else.
func keepAwake(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile("/dev/cpu_dma_latency", os.O_WRONLY, 0)
	if err == nil {
		_, err = f.Write(make([]byte, 4))
	}
	if err != nil {
		t.Logf("processors may sleep, and come back late: %v", err)
		return
	}
	t.Cleanup(func() { _ = f.Close() })
}
