package api

import (
	"errors"

	"bartleby.mq/internal/core/expression"
)

// patterns reads the regular expressions of a permission, which must be valid.
func (r *request) patterns(fields map[string]*string) error {
	for _, key := range []string{"configure", "write", "read"} {
		to, ok := fields[key]
		if !ok {
			continue
		}
		text, err := r.text(key)
		if err != nil {
			return err
		}
		_, err = expression.CompileName(text)
		if tooLarge := (*expression.TooLarge)(nil); errors.As(err, &tooLarge) {
			return badRequest(key + ": " + err.Error())
		}
		if err != nil {
			return badRequest("invalid_regexp", text, err.Error())
		}
		*to = text
	}
	return nil
}
