BEGIN TRANSACTION;
CREATE TABLE gpuspawner_course_actions (
	id INTEGER NOT NULL, 
	course VARCHAR(64) NOT NULL, 
	at FLOAT NOT NULL, 
	text TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "gpuspawner_course_actions" VALUES(1,'deep',1772442000.0,'Stopped 2 servers.');
CREATE TABLE gpuspawner_course_starts (
	course VARCHAR(64) NOT NULL, 
	session VARCHAR(32) NOT NULL, 
	"user" VARCHAR(255) NOT NULL, 
	stage VARCHAR(16) NOT NULL, 
	tries INTEGER NOT NULL, 
	asked_at FLOAT NOT NULL, 
	ready_at FLOAT NOT NULL, 
	fault VARCHAR(1000) NOT NULL, 
	PRIMARY KEY (course, session, "user")
);
INSERT INTO "gpuspawner_course_starts" VALUES('deep','2026-03-02','ann','started',1,1772441400.0,1772441500.0,'');
CREATE TABLE gpuspawner_fleet_grants (
	job_id VARCHAR(64) NOT NULL, 
	node VARCHAR(255) NOT NULL, 
	at FLOAT NOT NULL, 
	facts TEXT NOT NULL, 
	PRIMARY KEY (job_id)
);
INSERT INTO "gpuspawner_fleet_grants" VALUES('7','g1',86400.0,'{"job_id": "7", "node": "g1", "at": 86400.0, "gpus": 2, "aligned": true, "across": false, "loss": 0.0}');
CREATE TABLE gpuspawner_fleet_nodes (
	node VARCHAR(255) NOT NULL, 
	seen_at FLOAT NOT NULL, 
	record TEXT NOT NULL, 
	PRIMARY KEY (node)
);
INSERT INTO "gpuspawner_fleet_nodes" VALUES('g1',86400.0,'{"version": 1, "node": "g1", "topology": {"version": 1, "hostname": "", "gpus": [{"index": 0, "uuid": "GPU-g1-0", "pci": "0000:07:00.0", "name": "Tesla V100-SXM2-16GB", "memory_mib": 16384, "numa_node": 0, "cpus": [], "mig": null, "minor": 0, "nvlink_generation": 2, "pcie_generation": 3, "numa_affinity": [], "gpu_numa_id": null, "pcie_width": 16, "pcie_max_width": null}], "links": [["X"]], "numa_nodes": [{"id": 0, "cpus": [0, 1, 2, 3], "memory_mib": 65000, "distances": []}, {"id": 1, "cpus": [4, 5, 6, 7], "memory_mib": 65100, "distances": []}], "siblings": [[0], [1], [2], [3], [4], [5], [6], [7]], "packages": [[0, 1, 2, 3], [4, 5, 6, 7]], "devices": ["0000:07:00.0", "0000:0a:00.0", "0000:85:00.0", "0000:88:00.0"], "nics": [], "nic_links": [], "nic_numa": [], "source": "nvml+sysfs", "simulated": false, "driver": "550.90", "problems": []}, "seen": [86400.0], "seen_at": 86400.0, "whole_at": null, "gres": "gpu:v100:4(S:0-1)"}');
CREATE TABLE gpuspawner_idle (
	id INTEGER NOT NULL, 
	"user" VARCHAR(255) NOT NULL, 
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
INSERT INTO "gpuspawner_idle" VALUES(1,'ann','','k80','12',2,1772440500.0,1772441700.0,1.0,400,NULL,'report',NULL,1,1800.0,FALSE,FALSE);
CREATE TABLE gpuspawner_messages (
	kind VARCHAR(16) NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	"user" VARCHAR(255) NOT NULL, 
	sender VARCHAR(255) NOT NULL, 
	text VARCHAR(500) NOT NULL, 
	at FLOAT NOT NULL, 
	until FLOAT NOT NULL, 
	PRIMARY KEY (kind, name, "user")
);
INSERT INTO "gpuspawner_messages" VALUES('course','deep','','ida','Lunch at noon.',1772442000.0,1772445600.0);
CREATE TABLE gpuspawner_slugs (
	slug VARCHAR(63) NOT NULL, 
	file VARCHAR(255) NOT NULL, 
	PRIMARY KEY (slug)
);
INSERT INTO "gpuspawner_slugs" VALUES('p','old.yaml');
CREATE TABLE gpuspawner_starts (
	start_id VARCHAR(64) NOT NULL, 
	user_name VARCHAR(255) NOT NULL, 
	server_name VARCHAR(255) NOT NULL, 
	made_at FLOAT NOT NULL, 
	PRIMARY KEY (start_id)
);
INSERT INTO "gpuspawner_starts" VALUES('0a1b2c3d-11111111','ann','lab',1772442000.0);
CREATE INDEX ix_gpuspawner_course_actions_course ON gpuspawner_course_actions (course);
CREATE INDEX ix_gpuspawner_fleet_grants_at ON gpuspawner_fleet_grants (at);
COMMIT;
