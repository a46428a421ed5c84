package deadletter

// Profile names the product whose rules a virtual host follows where products differ (DL-22).
type Profile string

// The profiles. An unset profile means RabbitMQ's, except where it means the default.
const (
	RabbitMQ Profile = "rabbitmq"
	ApsaraMQ Profile = "apsaramq"
)

// Profiles lists all profiles.
var Profiles = []Profile{RabbitMQ, ApsaraMQ}

// ParseProfile reads a profile's name; ok is false for anything else.
func ParseProfile(s string) (p Profile, ok bool) {
	switch p = Profile(s); p {
	case RabbitMQ, ApsaraMQ:
		return p, true
	}
	return "", false
}
