package openapi

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"unicode/utf8"
)

// parameters are the parameters of a request, from its query and its form, all UTF-8. No name is there twice, so
// that the check of the signature and the action see the same values.
type parameters map[string]string

// Limits of a request.
const (
	maxBody       = 64 << 10 // bytes
	maxParameters = 128
)

// readBody reads the form that a request may have.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, *refusal) {
	if r.ContentLength > maxBody {
		return nil, tooManyBytes // without waiting for the rest
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, tooManyBytes
	case err != nil:
		return nil, badParameters
	}
	return body, nil
}

// isForm says whether a request's body is a form.
func isForm(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/x-www-form-urlencoded"
}

// parseParameters parses the query and the form.
func parseParameters(r *http.Request, form []byte) (parameters, *refusal) {
	p := parameters{}
	if err := p.add(r.URL.RawQuery); err != nil {
		return nil, err
	}
	if len(form) == 0 {
		return p, nil
	}
	if !isForm(r) {
		return nil, badParameters
	}
	return p, p.add(string(form))
}

func (p parameters) add(encoded string) *refusal {
	values, err := url.ParseQuery(encoded)
	if err != nil {
		return badParameters
	}
	for name, all := range values {
		if _, twice := p[name]; twice || len(all) != 1 || name == "" || !utf8.ValidString(name) || !utf8.ValidString(all[0]) {
			return badParameters
		}
		p[name] = all[0]
	}
	if len(p) > maxParameters {
		return badParameters
	}
	return nil
}
