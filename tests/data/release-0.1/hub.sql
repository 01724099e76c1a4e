BEGIN TRANSACTION;
CREATE TABLE gpuspawner_course_actions (
	id INTEGER NOT NULL, 
	course VARCHAR(64) NOT NULL, 
	at FLOAT NOT NULL, 
	text TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "gpuspawner_course_actions" VALUES(1,'deep',1795600000.0,'Stopped 2 servers.');
CREATE TABLE gpuspawner_course_people (
	course VARCHAR(64) NOT NULL, 
	user VARCHAR(255) NOT NULL, 
	added_by VARCHAR(255) NOT NULL, 
	at FLOAT NOT NULL, 
	PRIMARY KEY (course, user)
);
INSERT INTO "gpuspawner_course_people" VALUES('deep','eve','ida',1795600000.0);
CREATE TABLE gpuspawner_course_starts (
	course VARCHAR(64) NOT NULL, 
	session VARCHAR(32) NOT NULL, 
	user VARCHAR(255) NOT NULL, 
	stage VARCHAR(16) NOT NULL, 
	tries INTEGER NOT NULL, 
	asked_at FLOAT NOT NULL, 
	ready_at FLOAT NOT NULL, 
	fault VARCHAR(1000) NOT NULL, 
	PRIMARY KEY (course, session, user)
);
INSERT INTO "gpuspawner_course_starts" VALUES('deep','2026-11-25','ada','failed',2,1795600000.0,1795600060.0,'sbatch: error: no');
CREATE TABLE gpuspawner_extension_versions (
	extension VARCHAR(255) NOT NULL, 
	version INTEGER NOT NULL, 
	PRIMARY KEY (extension)
);
INSERT INTO "gpuspawner_extension_versions" VALUES('messages',1);
INSERT INTO "gpuspawner_extension_versions" VALUES('idle',1);
INSERT INTO "gpuspawner_extension_versions" VALUES('courses',1);
INSERT INTO "gpuspawner_extension_versions" VALUES('fleet',3);
CREATE TABLE gpuspawner_fleet_grants (
	cluster VARCHAR(255) NOT NULL, 
	job_id VARCHAR(64) NOT NULL, 
	node VARCHAR(255) NOT NULL, 
	at FLOAT NOT NULL, 
	facts TEXT NOT NULL, 
	PRIMARY KEY (cluster, job_id)
);
INSERT INTO "gpuspawner_fleet_grants" VALUES('cedar','4711','g1',1795600000.0,'{"job_id": "4711", "node": "g1", "at": 1795600000.0, "gpus": 2, "aligned": true, "across": true, "loss": 12.5}');
CREATE TABLE gpuspawner_fleet_nodes (
	cluster VARCHAR(255) NOT NULL, 
	node VARCHAR(255) NOT NULL, 
	seen_at FLOAT NOT NULL, 
	record TEXT NOT NULL, 
	PRIMARY KEY (cluster, node)
);
INSERT INTO "gpuspawner_fleet_nodes" VALUES('cedar','g1',1795600002.0,'{"version": 1, "node": "g1", "topology": {"version": 2, "hostname": "", "gpus": [{"index": 0, "uuid": "GPU-aa", "pci": "0000:07:00.0", "name": "A100", "memory_mib": 40960, "numa_node": 0, "minor": 3, "nvlink_generation": 3, "pcie_generation": 4, "numa_affinity": [0], "gpu_numa_id": 2, "pcie_width": 16, "pcie_max_width": 16, "fault": "GPU is lost"}, {"index": 1, "uuid": "MIG-bb", "pci": "0000:0a:00.0", "name": "A100", "memory_mib": 4864, "numa_node": 1, "mig": "1g.5gb", "minor": 5, "nvlink_generation": 3, "pcie_generation": 4, "numa_affinity": [1], "pcie_width": 8, "pcie_max_width": 16, "vendor": "amd", "xgmi_gbps": 50}], "links": [["X", "NV2"], ["NV2", "X"]], "numa_nodes": [{"id": 0, "cpus": "0-1", "memory_mib": 65000, "distances": [10, 21]}, {"id": 1, "cpus": "2-3", "memory_mib": 65100, "distances": [21, 10]}], "siblings": ["0-1", "2-3"], "packages": ["0-1", "2-3"], "devices": ["0000:07:00.0", "0000:0a:00.0"], "nics": ["mlx5_0"], "nic_links": [["PIX", "SYS"]], "nic_numa": [0], "source": "nvml+sysfs", "simulated": true, "driver": "550.90", "problems": [], "notes": ["GPU 1 has 8 lanes."]}, "seen": [1795600001.0, 1795600001.0], "sightings": [{"people": ["ada", "eve"], "lanes": [["ada", 16], ["eve", 16]]}, {"people": ["ada", "eve"], "lanes": [["ada", 8], ["eve", 8]]}], "seen_at": 1795600002.0, "whole_at": 1795600001.0, "gres": "gpu:a100:2(S:0-1)", "agreeing": 2, "people": ["ada", "eve"], "doubt": {"version": 1, "node": "g1", "topology": {"version": 2, "hostname": "", "gpus": [{"index": 0, "uuid": "GPU-aa", "pci": "0000:07:00.0", "name": "A100", "memory_mib": 40960, "numa_node": 0, "minor": 3, "nvlink_generation": 3, "pcie_generation": 4, "numa_affinity": [0], "gpu_numa_id": 2, "pcie_width": 16, "pcie_max_width": 16, "fault": "GPU is lost"}, {"index": 1, "uuid": "MIG-bb", "pci": "0000:0a:00.0", "name": "A100", "memory_mib": 4864, "numa_node": 1, "mig": "1g.5gb", "minor": 5, "nvlink_generation": 3, "pcie_generation": 4, "numa_affinity": [1], "pcie_width": 8, "pcie_max_width": 16, "vendor": "amd", "xgmi_gbps": 50}], "links": [["X", "SYS"], ["SYS", "X"]], "numa_nodes": [{"id": 0, "cpus": "0-1", "memory_mib": 65000, "distances": [10, 21]}, {"id": 1, "cpus": "2-3", "memory_mib": 65100, "distances": [21, 10]}], "siblings": ["0-1", "2-3"], "packages": ["0-1", "2-3"], "devices": ["0000:07:00.0", "0000:0a:00.0"], "nics": ["mlx5_0"], "nic_links": [["PIX", "SYS"]], "nic_numa": [0], "source": "nvml+sysfs", "simulated": true, "driver": "550.91", "problems": [], "notes": ["GPU 1 has 8 lanes."]}, "seen": [1795600002.0, 1795600002.0], "sightings": [{"people": ["ida"], "lanes": [["ida", 16]]}, {"people": ["ida"], "lanes": [["ida", 8]]}], "seen_at": 1795600002.0, "whole_at": 1795600002.0, "gres": "gpu:a100:2(S:0-1)", "agreeing": 1, "people": ["ida"], "doubt": null}}');
CREATE TABLE gpuspawner_idle (
	id INTEGER NOT NULL, 
	user VARCHAR(255) NOT NULL, 
	server VARCHAR(255) NOT NULL, 
	profile VARCHAR(255) NOT NULL, 
	job_id VARCHAR(64) NOT NULL, 
	gpus INTEGER NOT NULL, 
	since FLOAT NOT NULL, 
	seen FLOAT NOT NULL, 
	most FLOAT NOT NULL, 
	held_mib INTEGER NOT NULL, 
	due_at FLOAT, 
	action VARCHAR(16) NOT NULL, 
	told_at FLOAT, 
	keeps INTEGER NOT NULL, 
	kept FLOAT NOT NULL, 
	stopped BOOLEAN NOT NULL, 
	over BOOLEAN NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "gpuspawner_idle" VALUES(1,'ada','lab','k80','4711',2,1795600000.0,1795600060.0,1.5,400,4000000000.0,'stop',1795600000.0,1,1800.0,1,0);
CREATE TABLE gpuspawner_messages (
	kind VARCHAR(16) NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	user VARCHAR(255) NOT NULL, 
	sender VARCHAR(255) NOT NULL, 
	text VARCHAR(500) NOT NULL, 
	at FLOAT NOT NULL, 
	until FLOAT NOT NULL, 
	PRIMARY KEY (kind, name, user)
);
INSERT INTO "gpuspawner_messages" VALUES('course','deep','ada','ida','Lunch at noon.',1795600000.0,4000000000.0);
CREATE TABLE gpuspawner_schema (
	version INTEGER NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "gpuspawner_schema" VALUES(3);
CREATE TABLE gpuspawner_slugs (
	slug VARCHAR(63) NOT NULL, 
	file VARCHAR(255) NOT NULL, 
	PRIMARY KEY (slug)
);
INSERT INTO "gpuspawner_slugs" VALUES('k80','gpu.yaml');
CREATE TABLE gpuspawner_starts (
	start_id VARCHAR(64) NOT NULL, 
	user_name VARCHAR(255) NOT NULL, 
	server_name VARCHAR(255) NOT NULL, 
	made_at FLOAT NOT NULL, 
	PRIMARY KEY (start_id)
);
INSERT INTO "gpuspawner_starts" VALUES('0a1b2c3d-11111111','ada','lab',1795600000.0);
CREATE INDEX ix_gpuspawner_course_actions_course ON gpuspawner_course_actions (course);
CREATE INDEX ix_gpuspawner_fleet_grants_at ON gpuspawner_fleet_grants (at);
COMMIT;
PRAGMA user_version = 0;
