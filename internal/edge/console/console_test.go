package console

import (
	"compress/gzip"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
)

func ask(h http.Handler, method, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func teapot(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }

// The page is at the root; the API and everything that is no page goes on.
func TestWhatIsThePage(t *testing.T) {
	h := Handler(http.HandlerFunc(teapot))
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{"GET", "/", 200},
		{"HEAD", "/", 200},
		{"POST", "/", 418},
		{"GET", "/api/overview", 418},
		{"GET", "/index.html", 418},
		{"GET", "/assets/none.js", 404},
		{"GET", "/assets/", 404},
		{"GET", "/assets/../console.go", 404},
		{"GET", "/assets/unbuilt.html", 404},
		{"POST", "/assets/none.js", 418},
	} {
		if w := ask(h, c.method, c.path); w.Code != c.want {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, w.Code, c.want)
		}
	}
}

// Every page forbids what a page of the console never does.
func TestHeaders(t *testing.T) {
	w := ask(Handler(http.HandlerFunc(teapot)), "GET", "/")
	for name, want := range map[string]string{
		"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		"Cache-Control": "no-cache", "Content-Type": "text/html; charset=utf-8",
	} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for _, word := range []string{"unsafe", "*", "http:", "https:"} {
		if strings.Contains(policy, word) {
			t.Errorf("the policy has %q", word)
		}
	}
	if w.Header().Get("Set-Cookie") != "" {
		t.Error("the page sets a cookie")
	}
}

// A binary without the console has a page that says how to get it; one with the console has the console.
func TestThePageWithoutTheConsole(t *testing.T) {
	without := load(fstest.MapFS{"assets/unbuilt.html": {Data: []byte("how to get it")}})
	if got := without["/"]; got == nil || string(got.plain) != "how to get it" || len(without) != 1 {
		t.Errorf("without the console: %v", without)
	}
	with := load(fstest.MapFS{
		"assets/unbuilt.html": {Data: []byte("how to get it")}, "assets/index.html": {Data: []byte("console")}, "assets/app-1.js": {Data: []byte("1")},
	})
	if got := with["/"]; got == nil || string(got.plain) != "console" || with["/assets/app-1.js"] == nil || len(with) != 2 {
		t.Errorf("with the console: %v", with)
	}
}

// What a browser has is not sent again, and what it can unpack is sent packed.
func TestCachingAndCompression(t *testing.T) {
	long := strings.Repeat("console ", 1000)
	f := newFile("assets/app-1.js", []byte(long))
	h := http.HandlerFunc(f.serve)
	plain := ask(h, "GET", "/assets/app-1.js")
	if plain.Body.String() != long || plain.Header().Get("Content-Encoding") != "" || !strings.HasPrefix(plain.Header().Get("Content-Type"), "text/javascript") {
		t.Errorf("plain: %v", plain.Header())
	}
	for accepted, want := range map[string]bool{
		"gzip": true, "br, gzip;q=0.5": true, "gzip;q=0": false, "gzip; q=0.0": false, "deflate": false, "x-gzip": false, "": false, "gzip;q=x": false,
	} {
		w := ask(h, "GET", "/assets/app-1.js", "Accept-Encoding", accepted)
		if got := w.Header().Get("Content-Encoding") == "gzip"; got != want {
			t.Errorf("Accept-Encoding %q: packed %v, want %v", accepted, got, want)
		}
		if want {
			z, err := gzip.NewReader(w.Body)
			if err != nil {
				t.Fatal(err)
			}
			if text, err := io.ReadAll(z); err != nil || string(text) != long {
				t.Errorf("%q: %d bytes come out, %v", accepted, len(text), err)
			}
		}
	}
	tag := plain.Header().Get("ETag")
	for tags, want := range map[string]int{tag: 304, "W/" + tag: 304, `"x", ` + tag: 304, `"x"`: 200, "": 200} {
		if w := ask(h, "GET", "/assets/app-1.js", "If-None-Match", tags); w.Code != want || want == 304 && w.Body.Len() > 0 {
			t.Errorf("If-None-Match %s: %d, want %d", tags, w.Code, want)
		}
	}
	if w := ask(h, "HEAD", "/assets/app-1.js"); w.Body.Len() > 0 || w.Header().Get("Content-Length") != "8000" {
		t.Errorf("HEAD: %v, %d bytes", w.Header(), w.Body.Len())
	}
	if small := newFile("a.svg", []byte("x")); small.zipped != nil {
		t.Error("what is longer packed is packed")
	}
}

// The first load is at most 150 KiB: everything that the page names, packed.
func TestTheFirstLoadIsSmall(t *testing.T) {
	if !Built() {
		t.Skip(`the console was not built: "make build" does, with Node 20 or newer`)
	}
	const most = 150 << 10
	page, err := fs.ReadFile(assets, "assets/"+index)
	if err != nil {
		t.Fatal(err)
	}
	total, named := 0, 0
	for name, f := range load(assets) {
		if name == "/" || strings.Contains(string(page), strings.TrimPrefix(name, "/")) {
			named++
			if f.zipped != nil {
				total += len(f.zipped)
			} else {
				total += len(f.plain)
			}
		}
	}
	t.Logf("%d files, %d bytes", named, total)
	if total > most || named < 3 {
		t.Errorf("the first load has %d files with %d bytes, want at most %d", named, total, most)
	}
	if strings.Contains(string(page), "<style") || strings.Contains(string(page), "<script>") {
		t.Error("the page has a script or a style in it, which its policy forbids")
	}
}
