package server

import "net/http"

// managementAPI is the handler of the management listener.
func (s *Server) managementAPI(token string) http.Handler {
	_ = token
	return http.NotFoundHandler()
}
