package server

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Scripts for RabbitMQ download rabbitmqadmin from the node, without a login. In strict mode it is not there, as with RabbitMQ 4.3.
func TestRabbitmqadminIsServed(t *testing.T) {
	for _, strict := range []bool{false, true} {
		o, _ := options(t.TempDir())
		o.Config.Strict = strict
		s := mustStart(t, o)
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		get := func(path string) (int, string) {
			resp, err := client.Get("http://" + s.Addresses().HTTP.String() + path)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			return resp.StatusCode, string(text)
		}
		for path, begins := range map[string]string{"/cli/rabbitmqadmin": "#!/usr/bin/env python3\n", "/cli": "<!DOCTYPE html>", "/cli/": "<!DOCTYPE html>", "/cli/index.html": "<!DOCTYPE html>"} {
			code, text := get(path)
			if found := code == http.StatusOK && strings.HasPrefix(text, begins); found == strict {
				t.Errorf("strict is %v, %s: %d %s", strict, path, code, text)
			}
		}
		if code, _ := get("/cli/other"); code != http.StatusNotFound {
			t.Errorf("/cli/other: %d", code)
		}
		mustStop(t, s)
	}
}

func TestTheServedRabbitmqadminCallsBartleby(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil || runtime.GOOS == "windows" {
		t.Skip("no python3")
	}
	dir := t.TempDir()
	script, program := filepath.Join(dir, "rabbitmqadmin"), filepath.Join(dir, "bartleby")
	if err := os.WriteFile(script, []byte(adminScriptText), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output(); err == nil {
		python = strings.TrimSpace(string(out)) // not a shim that needs the path
	}
	call := func(path string) string {
		c := exec.Command(python, script, "list", "queues", "a b")
		c.Env = []string{"PATH=" + path, "HOME=" + dir}
		out, _ := c.CombinedOutput()
		return string(out)
	}
	if got := call(filepath.Join(dir, "nothing")); !strings.Contains(got, "which is not in the PATH") {
		t.Errorf("without bartleby: %s", got)
	}
	if err := os.Symlink("/bin/echo", program); err != nil {
		t.Fatal(err)
	}
	if got := call(dir); got != "list queues a b\n" {
		t.Errorf("bartleby got %q", got)
	}
}
