package api

import (
	"errors"
	"net/http"
	"path/filepath"

	"bartleby.mq/internal/run/datadir"
)

// backUp copies the data directory while clients work: ours, for `bartleby backup`. The body
// has "path", an absolute path on the node's machine that does not exist.
func (s *server) backUp(r *request) (any, error) {
	if err := missingKeys(r.body, "path"); err != nil {
		return nil, err
	}
	path, ok := r.body["path"].(string)
	if !ok || !filepath.IsAbs(path) {
		return nil, badRequest(`"path" must be an absolute path on the node's machine`)
	}
	done, err := s.b.BackUp(r.Context(), path)
	if errors.Is(err, datadir.ErrBackupThere) || errors.Is(err, datadir.ErrBackupUnderWay) {
		return nil, &failure{http.StatusConflict, "conflict", err.Error()}
	}
	if errors.Is(err, datadir.ErrBackupInside) || errors.Is(err, datadir.ErrBackupNowhere) {
		return nil, badRequest(err.Error())
	}
	if err != nil {
		return nil, &failure{http.StatusInternalServerError, "internal_error", err.Error()}
	}
	s.Logger.Info("backup written", "path", path, "took", done.Ended.Sub(done.Began))
	return done, nil
}
