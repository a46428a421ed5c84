package config

// OpenAPI is who may administer the node by the API of ApsaraMQ for RabbitMQ (DL-22.16);
// without access keys it is off.
type OpenAPI struct {
	// InstanceID is apsaramq.instance_id: the one instance that requests may name; "": any.
	InstanceID string
	AccessKeys []AccessKey // apsaramq.access_key.*, by name
}

// AccessKey signs requests on behalf of a user.
type AccessKey struct {
	Name   string // as the configuration calls it
	ID     string // what requests say: public
	Secret string // what they are signed with
	User   string // whose permissions they have
}
