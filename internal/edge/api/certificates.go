package api

import (
	"math"
	"strconv"
	"time"
)

// units are the lengths of the units of the certificate check, in days.
var units = map[string]int{"day": 1, "days": 1, "week": 7, "weeks": 7, "month": 30, "months": 30, "year": 365, "years": 365}

// checkCertificates fails if a certificate of a listener expires within a time (BR-15.11).
func (s *server) checkCertificates(r *request) (any, error) {
	days, known := units[r.params["unit"]]
	if !known {
		return nil, badRequest("Time unit not recognised. Supported units: days, weeks, months, years.")
	}
	n, err := strconv.Atoi(r.params["within"])
	if err != nil || n < 0 && !s.b.Strict || n > math.MaxInt32/days {
		return nil, badRequest("Invalid expiration value.")
	}
	by := time.Now().AddDate(0, 0, n*days)
	expired := []any{}
	for _, c := range s.certificates() {
		own, authorities := before(c.CertExpires, by), before(c.CACertExpires, by)
		if len(own)+len(authorities) > 0 {
			expired = append(expired, map[string]any{
				"node": s.NodeName, "interface": c.Host, "port": c.Port, "protocol": c.Protocol,
				"certfile": c.CertFile, "certfile_expires_on": own, "cacertfile": c.CACertFile, "cacertfile_expires_on": authorities,
			})
		}
	}
	if len(expired) == 0 {
		return healthy, nil
	}
	return failed("Certificates expiring", map[string]any{"expired": expired}), nil
}

func (s *server) certificates() []Certificates {
	if s.Certificates == nil {
		return nil
	}
	return s.Certificates()
}

// before lists the moments before another, as texts.
func before(moments []time.Time, limit time.Time) []string {
	list := []string{}
	for _, m := range moments {
		if m.Before(limit) {
			list = append(list, m.UTC().Format("2006-01-02 15:04:05"))
		}
	}
	return list
}
