package api

// RoutesOf are the methods and patterns of a handler from New, for tests of each of them.
func RoutesOf(h Handler) (all []struct{ Method, Pattern string }) {
	for _, r := range h.(*server).routes() {
		all = append(all, struct{ Method, Pattern string }{r.method, r.pattern})
	}
	return all
}
