package config

// OpenAPI configures the API of ApsaraMQ for RabbitMQ (DL-22.16); without access keys it is
// off.
type OpenAPI struct {
	// InstanceID is apsaramq.instance_id: the only instance that requests may name; "": any.
	InstanceID string
	AccessKeys []AccessKey // apsaramq.access_key.*, by name
}

// AccessKey signs requests on behalf of a user.
type AccessKey struct {
	Name   string // its name in the configuration
	ID     string // its public ID in requests
	Secret string // signs requests
	User   string // the user of its requests
}
