package server

import (
	"net/http"
	"strings"
)

// adminScript serves what scripts for RabbitMQ download: /cli/rabbitmqadmin, up to RabbitMQ 4.0 the program of that name. It needs
// no login, as there. All else goes to next; so does this in strict mode, since RabbitMQ 4.3 has the page /cli/ only, and no program.
func (s *Server) adminScript(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.Config.Strict || !isAdminPath(r.URL.Path) || r.Method != http.MethodGet && r.Method != http.MethodHead {
			next.ServeHTTP(w, r)
			return
		}
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-cache")
		if r.URL.Path == adminScriptPath {
			h.Set("Content-Type", "text/x-python; charset=utf-8")
			_, _ = w.Write([]byte(adminScriptText))
			return
		}
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
		_, _ = w.Write([]byte(adminPage))
	})
}

const adminScriptPath = "/cli/rabbitmqadmin"

func isAdminPath(path string) bool {
	return path == adminScriptPath || strings.TrimSuffix(strings.TrimSuffix(path, "index.html"), "/") == "/cli"
}

const adminPage = `<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>rabbitmqadmin</title>
<h1>rabbitmqadmin</h1>
<p>It is a part of the program <code>bartleby</code>, which is this tool when it is called by this name: <code>ln -s bartleby rabbitmqadmin</code>.
The Debian package has it in <code>/usr/lib/bartleby/bin</code>, the container image in the path.</p>
<p><a href="/cli/rabbitmqadmin">This script</a> calls it, for scripts that download the tool. RabbitMQ's own works too.</p>
</html>
`

// adminScriptText is in Python, as RabbitMQ's program was: who has downloaded it may call it by the interpreter.
const adminScriptText = `#!/usr/bin/env python3
# rabbitmqadmin is a part of the program bartleby. This script calls it, with all arguments.
import os
import shutil
import sys

program = shutil.which("bartleby")
if program is None:
    sys.exit("rabbitmqadmin is a part of the program bartleby, which is not in the PATH of this machine. "
             "Copy it from the node, or use the rabbitmqadmin of RabbitMQ.")
os.execv(program, ["rabbitmqadmin"] + sys.argv[1:])
`
