// Package console serves the built pages of the console, whose sources are in /console. The server puts its handler in front of
// the management API. It owns nothing but the files, which are part of the binary, and it never reads the disk or the broker:
// the pages ask the API for everything.
package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

// assets has what "make build" has made of the console, and a page that says how to get it.
//
//go:embed assets
var assets embed.FS

const (
	index   = "index.html"
	unbuilt = "unbuilt.html"
	// prefix is the path of everything but the page itself. The names below it contain a hash of the content.
	prefix = "/assets/"
)

// policy lets a page load scripts, styles, pictures and data from its own origin only, and run no script or style in it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'self'"

// Built says whether the console is in this binary.
func Built() bool {
	_, err := fs.Stat(assets, "assets/"+index)
	return err == nil
}

// Handler serves the console at / and below /assets/. All other requests go to next.
func Handler(next http.Handler) http.Handler {
	files := sync.OnceValue(func() map[string]*file { return load(assets) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		isPage := r.URL.Path == "/" && !r.URL.Query().Has("Action") // of ApsaraMQ's API, which is not there without a key
		if !isPage && !strings.HasPrefix(r.URL.Path, prefix) || r.Method != http.MethodGet && r.Method != http.MethodHead {
			next.ServeHTTP(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		f := files()[r.URL.Path]
		if f == nil {
			h.Set("Cache-Control", "no-cache")
			http.NotFound(w, r) // such as a script of an earlier version
			return
		}
		if isPage {
			h.Set("Cache-Control", "no-cache")
		} else {
			h.Set("Cache-Control", "public, max-age=31536000, immutable")
		}
		f.serve(w, r)
	})
}

// file is a file in memory.
type file struct {
	kind    string // of content
	tag     string // of the content
	plain   []byte
	zipped  []byte // nil if it is no shorter
	zipsTag string
}

// load reads all files, by their paths. What may be a page is the index, or if the console was not built the page that says so.
func load(from fs.FS) map[string]*file {
	files := map[string]*file{}
	_ = fs.WalkDir(from, "assets", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		f := newFile(name, content)
		switch base := strings.TrimPrefix(name, "assets/"); base {
		case index:
			files["/"] = f
		case unbuilt:
			if files["/"] == nil { // it comes after the index
				files["/"] = f
			}
		default:
			files[prefix+base] = f
		}
		return nil
	})
	return files
}

func newFile(name string, content []byte) *file {
	f := &file{kind: mime.TypeByExtension(path.Ext(name)), plain: content}
	switch path.Ext(name) { // the machine may know other types
	case ".js":
		f.kind = "text/javascript; charset=utf-8"
	case ".svg":
		f.kind = "image/svg+xml"
	}
	hash := sha256.Sum256(content)
	f.tag = `"` + hex.EncodeToString(hash[:12]) + `"`
	f.zipsTag = `"` + hex.EncodeToString(hash[:12]) + `-gzip"`
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is valid
	_, _ = z.Write(content)
	_ = z.Close()
	if b.Len() < len(content) {
		f.zipped = b.Bytes()
	}
	return f
}

func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("Vary", "Accept-Encoding")
	content, tag := f.plain, f.tag
	if f.zipped != nil && takesGzip(r.Header.Get("Accept-Encoding")) {
		content, tag = f.zipped, f.zipsTag
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("ETag", tag)
	if known(r.Header.Get("If-None-Match"), tag) {
		h.Del("Content-Encoding")
		h.Del("Content-Type")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(content)))
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodGet {
		_, _ = w.Write(content) // a client that went away is no error of ours
	}
}

// takesGzip says whether a list of encodings has gzip, and not to refuse it.
func takesGzip(accepted string) bool {
	for entry := range strings.SplitSeq(accepted, ",") {
		coding, weight, _ := strings.Cut(entry, ";")
		if strings.TrimSpace(coding) != "gzip" {
			continue
		}
		q, ok := strings.CutPrefix(strings.ReplaceAll(weight, " ", ""), "q=")
		n, err := strconv.ParseFloat(q, 64)
		return !ok || err == nil && n > 0
	}
	return false
}

// known says whether a list of entity tags has this one.
func known(tags, tag string) bool {
	for t := range strings.SplitSeq(tags, ",") {
		if strings.TrimPrefix(strings.TrimSpace(t), "W/") == tag {
			return true
		}
	}
	return false
}
